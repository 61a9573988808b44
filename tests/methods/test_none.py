"""The method without training: one epoch, in which the initial encoder is probed."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mtcon_ray.export.trained_network import load_network
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.testing import start
from tests import specs

ENCODERS: tuple[dict[str, Any], ...] = ({"name": "handcrafted"}, {"name": "small", "width": 4})


def make_spec(encoder: dict[str, Any], **sections: Any) -> RunSpec:
    data = {"kind": "synthetic", "num_items": 230, "tasks": ["shape"], "held_out": ["mark"]}
    train, evaluate = {"epochs": 12, "batch_size": 16}, {"every": 4, "bootstrap": 10}
    fixed = {**specs.TINY, "name": "baseline", "method": "none", "model": {"encoder": encoder}}
    return parse_spec({**fixed, "data": data, "train": train, "evaluate": evaluate, **sections})


def test_epochs_count_as_one() -> None:
    """Also epochs that a comparison's base gives; a stored spec is parsed to the same spec."""
    spec = make_spec(ENCODERS[1])
    assert (spec.train.epochs, spec.train.warmup_epochs, spec.evaluate.every) == (1, 0, 1)
    assert spec.train.batch_size == 16
    assert parse_spec(dump_spec(spec)) == spec
    assert make_spec(ENCODERS[1], method={"name": "mtcon"}).train.epochs == 12


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "select"), [(ENCODERS[0], "last"), (ENCODERS[1], "best")])
def test_an_encoder_stays_as_built(encoder: dict[str, Any], select: str, tmp_path: Path) -> None:
    evaluate, train = {"bootstrap": 10, "select": select}, {"batch_size": 512}  # no whole batch
    spec = make_spec(encoder, evaluate=evaluate, train=train)
    run = start(spec, tmp_path / "store", tmp_path / "run")
    (only,) = run
    assert (only.epoch, only.evaluated, only.done) == (1, True, True)
    names = {"val/accuracy", "val/accuracy/shape", "val/accuracy_std/shape"}
    assert only.metrics.keys() - {"val/best"} == names
    assert {"test/accuracy/shape", "heldout/accuracy/mark"} <= run.report().keys()
    method = METHODS["none"](spec.method, spec.problem({}))
    built = build_network(spec.model, method.make_network, spec.seed).state_dict()
    _, kept = load_network(tmp_path / "run" / "model.pt")
    for state in (run.network.state_dict(), kept.state_dict()):
        torch.testing.assert_close(state, built, rtol=0, atol=0)
    again = start(spec, tmp_path / "store", tmp_path / "run")
    assert (list(again), again.last) == ([], only)
