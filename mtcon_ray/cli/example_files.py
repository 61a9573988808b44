"""Documents, example specs, scripts and cluster files, of an installed wheel as of a checkout."""

import shutil
from pathlib import Path

from mtcon_ray.errors import ResourceError, SweepError

PACKAGE = Path(__file__).parents[1]
# The build copies these folders of a checkout's top into the package (pyproject.toml).
FOLDERS = ("cluster", "docs", "examples", "experiments")
SYNTHETIC = "experiments/temperature.yaml"


def example_file(name: str) -> Path:
    """Returns a file or folder of FOLDERS by its path in a checkout.

    Raises ResourceError if neither the package nor a checkout around it has the file.
    """
    for place in (PACKAGE / "example_files", PACKAGE.parent):
        if (place / name).exists():
            return place / name
    lacking = f"the installation lacks the example files: there is no {name} next to {PACKAGE}"
    raise ResourceError(f"{lacking}; install mtcon-ray from its wheel, or in a checkout")


def copy_examples(target: Path) -> list[Path]:
    """Copies FOLDERS into `target`, after making it if necessary. Returns the new folders.

    Raises SweepError before copying if a folder with such a name already exists.
    """
    copies = {example_file(name): target / name for name in FOLDERS}
    for copy in copies.values():
        if copy.exists():
            raise SweepError(f"{copy} exists already; remove it or choose another FOLDER")
    for source, copy in copies.items():
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    return [*copies.values()]
