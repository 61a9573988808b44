"""The plans of a comparison's sweeps, which are made before the first training."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.comparison.stages import plan_stages
from mtcon_ray.errors import SpecError
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from tests.comparison.conftest import Load

ANYWHERE = ClusterView("any cluster", (NodeKind("any node", 2, 0, None),))
DATA = {"kind": "synthetic", "num_items": 120}
SPACE = {"train.lr": {"loguniform": [0.01, 1.0]}}
RAW: dict[str, Any] = {
    "base": {"data": DATA, "views": {"size": 16}, "train": {"epochs": 4, "batch_size": 16}},
    "systems": {"MTCon": {"method": "mtcon"}},
    "tune": {"epochs": 2, "num_trials": 3, "again": 2, "sampler": "tpe", "space": SPACE},
}


def stages(load: Load, root: Path, **tune: Any) -> list[tuple[str, int]]:
    found = plan_stages(load(**{**RAW, "tune": {**RAW["tune"], **tune}}), root, ANYWHERE)
    return [(name, plan.num_trials) for _, name, plan in found]


def test_a_tuned_system_has_three_stages(load: Load, tmp_path: Path) -> None:
    assert stages(load, tmp_path) == [("tune", 3), ("again", 2), ("seeds", 3)]


def test_settings_of_tuning_are_checked_before_training(load: Load, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"start_from must name .*'no-such-sweep'"):
        stages(load, tmp_path, start_from=["no-such-sweep"])
    with pytest.raises(SpecError, match=r"leave train\.epochs out of the space"):
        stages(load, tmp_path, space={"train.epochs": {"choice": [1, 2]}})
    pairs = {
        "train.momentum": {"grid": [0.0, 0.9]},
        "train.optimizer.nesterov": {"grid": [False, True]},
    }
    with pytest.raises(SpecError, match=r"search\.space must hold configurations that"):
        stages(load, tmp_path, sampler="grid", num_trials=4, again=None, space=pairs)
