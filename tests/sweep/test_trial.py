"""What a trial refuses before it trains."""

from pathlib import Path
from typing import Any, cast

import torch

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
