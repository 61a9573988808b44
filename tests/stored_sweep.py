"""A sweep of the first version, as it is stored and as versions of today would have written it."""

import json
import shutil
from pathlib import Path

STORED = Path(__file__).parent / "stored" / "first_version"


def copy_stored(folder: Path) -> None:
    """Copies the sweep."""
    shutil.copytree(STORED, folder)


def add_kinds(folder: Path) -> None:
    """Adds what later versions write, so that the spec need not be parsed to show the results."""
    plan = json.loads((folder / "plan.json").read_text())
    plan["kinds"] = {"shape": "classes", "attributes": "set", "tilt": "classes"}
    (folder / "plan.json").write_text(json.dumps(plan))
    spec = (folder / "spec.yaml").read_text()
    assert "select" not in spec
    (folder / "spec.yaml").write_text(
        spec.replace("evaluate:\n", "evaluate:\n  select: last\n  neighbours: 20\n")
    )
