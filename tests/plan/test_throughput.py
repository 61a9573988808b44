"""Tests of the measured throughput, which counts completed work on a GPU."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from mtcon_ray.plan import throughput
from mtcon_ray.spec.run_spec import parse_spec, with_values
from mtcon_ray.training.trainer import Trainer
from tests import specs


@pytest.mark.parametrize(("device", "waits"), [("cpu", 0), ("cuda", 26)])
def test_gpu_steps_are_awaited(device: str, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the 26 steps is synchronised with a GPU before its time is taken."""
    waited: list[torch.device] = []
    times: list[float] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    enough = throughput.stopwatch(torch.device(device), times)
    while not enough():
        pass
    assert (len(times), len(waited)) == (26, waits)


@pytest.mark.slow
@pytest.mark.parametrize("resources", [{"workers": 2}, {"workers": [1, 2]}, {"gpus": 2}])
def test_of_several_workers_one_is_measured(
    resources: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process trains with a worker's share of the batch, on at most one GPU."""
    watched = Mock(wraps=Trainer)
    monkeypatch.setattr(throughput, "Trainer", watched)
    if "gpus" in resources:
        monkeypatch.setattr(throughput, "choose_device", lambda spec: torch.device("cpu"))
    search = {"objective": "knn"}
    spec = parse_spec({**specs.TINY, "name": "rate", "resources": resources, "search": search})
    measured = throughput.measure_rates(spec, tmp_path)
    assert min(measured.images_per_second, measured.test_seconds) > 0
    untested = with_values(spec, {"evaluate.test": False})
    assert throughput.measure_rates(untested, tmp_path).test_seconds == 0
    one = watched.call_args.args[0]
    assert (one.resources.workers, one.resources.gpus) == (1, 1 if "gpus" in resources else 0)
    assert one.search.objective == "knn", "or its time is left out"
    assert one.train.batch_size == (8 if "workers" in resources else 16)
