"""The examples run as they stand and learn something."""

import math
import runpy
from pathlib import Path
from statistics import fmean

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MAX_LINES = 50
# Per task, log(63) nats is the loss of 64 equal rows: 32 images in two views, less the anchor.
COLLAPSED = 2 * math.log(63)


@pytest.mark.slow
def test_the_loss_of_the_training_loop_falls() -> None:
    """Below the loss of a collapsed network, which a falling loss alone would not show."""
    losses = runpy.run_path(str(EXAMPLES / "training_loop.py"))["train"]()
    assert all(map(math.isfinite, losses))
    assert fmean(losses[-10:]) < 0.85 * fmean(losses[:5])
    assert fmean(losses[-10:]) < COLLAPSED - 0.5


def test_every_example_is_short() -> None:
    lengths = {p.name: len(p.read_text("utf-8").splitlines()) for p in EXAMPLES.glob("*.py")}
    assert lengths
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}
