"""All comparisons in one command: systems on shoes, wrong labels, label sets, heads, tuning.

    python experiments/compare_methods.py --photos FOLDER [options of `mtcon-ray compare`]

FOLDER must contain fashion_shoes and fashion_products. A second call resumes stopped comparisons.
All take about nine and a half hours on 2 cores, including four hours for compare_tuned.yaml.
"""

import subprocess
import sys
from pathlib import Path

import click

HERE = Path(__file__).parent
SHOES = {"csv": "labels.csv", "images": "images.tar.gz"}
COMPARISONS = {
    "compare_methods.yaml": ("fashion_shoes", SHOES),
    "compare_noise.yaml": ("fashion_shoes", SHOES),
    "compare_products.yaml": ("fashion_products", SHOES | {"attributes": "list_attr_fashion.txt"}),
    "compare_heads.yaml": ("fashion_shoes", SHOES),
    "compare_settings.yaml": ("fashion_shoes", SHOES),
    "compare_tuned.yaml": ("fashion_shoes", SHOES),
    "compare_tuned_colour.yaml": ("fashion_shoes", SHOES),
}


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--photos", type=click.Path(exists=True, path_type=Path), required=True)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(photos: Path, options: tuple[str, ...]) -> None:
    """Runs the comparisons in order, and exits with the first non-zero exit code."""
    for spec, (folder, files) in COMPARISONS.items():
        places = [f"--set=data.{name}={photos / folder / file}" for name, file in files.items()]
        command = [sys.executable, "-m", "mtcon_ray", "compare", str(HERE / spec), *places]
        code = subprocess.run([*command, *options], check=False).returncode
        if code != 0:
            sys.exit(code)


if __name__ == "__main__":
    main()
