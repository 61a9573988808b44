"""A stranger's folder, whose modules leave a mark if a command imports one of them."""

import os
from pathlib import Path

import yaml

from tests import specs
from tests.cluster.user import PLUGIN
from tests.processes import run
from tests.tables import write_table

# Modules that Python, Ray, torch or this package imports.
MODULES = (
    "numpy", "pandas", "yaml", "pydantic", "mtcon_ray", "torch", "ray", "sitecustomize",
    "multiprocessing", "signal",
)  # fmt: skip


def plant(folder: Path, mark: Path) -> None:
    for name in MODULES:
        text = f"import os\nos.makedirs({str(mark / name)!r}, exist_ok=True)\n"
        (folder / f"{name}.py").write_text(text)


class Stranger:
    """A folder of data and specs with modules that leave a mark, in which commands are run."""

    def __init__(self, folder: Path) -> None:
        self.data, self.root, self.mark = folder / "data", folder / "root", folder / "mark"
        write_table(self.data, colour=["red", "blue"])
        data = {"kind": "table", "csv": "labels.csv", "images": "images", "tasks": ["colour"]}
        base = {**specs.SHORT, "data": data, "train": {"epochs": 1, "batch_size": 16}}
        search = {"space": {"method.temperature": {"uniform": [0.1, 1.0]}}, "num_trials": 1}
        own = {"plugins": ["own"], "model": {"encoder": {"name": "own", "width": 8}}}
        systems = {"A": {"method": "xent", "seeds": 1}}
        comparison = {"name": "c", "base": {**base, **own}, "systems": systems}
        (self.data / "c.yaml").write_text(yaml.safe_dump(comparison))
        (self.data / "a.yaml").write_text(yaml.safe_dump({"name": "a", **base, "search": search}))
        (self.data / "own.py").write_text(PLUGIN)
        plant(self.data, self.mark)

    def run(self, *words: str, **variables: str) -> str:
        environment = {**os.environ, "MTCON_RAY_ROOT": str(self.root), **variables}
        done = run(words, cwd=self.data, env=environment)
        marks = sorted(each.name for each in self.mark.iterdir()) if self.mark.exists() else []
        assert not marks, f"{words} ran {marks}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout
