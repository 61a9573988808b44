"""What a trial refuses before it trains, and what is left when one fails."""

import gc
from pathlib import Path
from typing import Any, cast
from weakref import ref

import torch

from mtcon_ray.errors import DivergedError
from mtcon_ray.spec import parse_spec
from mtcon_ray.sweep.trial import Assignment, Outcome, reports


def test_a_trial_that_asked_for_a_gpu_does_not_train_on_a_cpu(tmp_path: Path) -> None:
    """Ray gives out what a node says to have; torch may find no driver there."""
    spec = parse_spec({"name": "t", "data": {"kind": "drawn"}, "resources": {"gpus": 0.5}})
    work = Assignment(name="trial-0000", spec=spec, sweep=tmp_path, root=tmp_path, places={})
    (only,) = reports(work, cast(Any, None), device=torch.device("cpu"))
    assert only["outcome"] is Outcome.FAILED
    assert only["done"]
    assert "resources.gpus must be what torch finds on the node, got 0.5" in only["reason"]


def test_a_failed_trial_holds_nothing_of_its_step(tmp_path: Path) -> None:
    """Its process waits for the next one, whose memory on the device it would be."""
    kept: list[ref[Any]] = []

    class Activations:
        """What a step has on the device."""

    def diverges(*_: Any, **__: Any) -> None:
        activations = Activations()
        kept.append(ref(activations))
        raise DivergedError("the loss of step 3 must be finite, got nan")

    spec = parse_spec({"name": "t", "data": {"kind": "drawn"}})
    work = Assignment(name="trial-0000", spec=spec, sweep=tmp_path, root=tmp_path, places={})
    waiting = reports(
        work, cast(Any, None), device=torch.device("cpu"), make_run=cast(Any, diverges)
    )
    assert next(waiting)["reason"].startswith("Diverged: the loss of step 3")
    gc.collect()
    assert kept[0]() is None
    assert list(waiting) == []
