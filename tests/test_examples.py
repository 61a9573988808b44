"""The examples run as they stand and learn something."""

import json
import math
import runpy
from pathlib import Path
from statistics import fmean

import pytest

from tests.processes import run_program

EXAMPLES = Path(__file__).parents[1] / "examples"
# Per task, log(63) nats is the loss of 64 equal rows: 32 images in two views, less the anchor.
COLLAPSED = 2 * math.log(63)


@pytest.mark.slow
def test_the_loss_of_the_training_loop_falls() -> None:
    """Below the loss of a collapsed network, which a falling loss alone would not show."""
    losses = runpy.run_path(str(EXAMPLES / "training_loop.py"))["train"]()
    assert all(map(math.isfinite, losses))
    assert fmean(losses[-10:]) < 0.85 * fmean(losses[:5])
    assert fmean(losses[-10:]) < COLLAPSED - 0.5


@pytest.mark.soak  # docs/python.md has the same calls, and runs in `make test`
@pytest.mark.ray
@pytest.mark.mlflow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Its code cells as one script, on fewer images; matplotlib draws without a window."""
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells), "commit it without outputs"
    code = "\n".join("".join(cell["source"]) for cell in cells)
    assert '"num_items": 600' in code
    for given, small in (('"num_items": 600', '"num_items": 120'), ('"epochs": 6', '"epochs": 2')):
        code = code.replace(given, small)
    done = run_program(f"{code}\nprint(frame.to_string())", tmp_path)
    assert done.stdout.count("finished") >= 4, "two lines of progress, two rows of the table"
    assert (tmp_path / "mtcon-ray" / "sweeps" / "notebook-1" / "report" / "index.html").exists()
