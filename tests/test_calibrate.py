"""A machine's rate is of work that is done, not of work that is handed to a GPU."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mtcon_ray import calibrate
from mtcon_ray.spec import parse_spec

SPEC: dict[str, Any] = {
    "name": "rate",
    "data": {"kind": "drawn", "num_items": 60},
    "views": {"size": 8},
    "train": {"batch_size": 8},
}


@pytest.mark.parametrize(("device", "waits"), [("cpu", 0), ("cuda", 26)])
def test_a_gpu_s_steps_are_waited_for(
    device: str, waits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each is timed; here only told."""
    waited: list[torch.device] = []

    def steps(*_: Any, should_stop: Callable[[], bool], **__: Any) -> Iterator[None]:
        while not should_stop():
            yield

    monkeypatch.setattr(calibrate, "pick_device", lambda spec: torch.device(device))
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(calibrate, "Run", steps)
    assert calibrate.measure_rate(parse_spec(SPEC), tmp_path) > 0
    assert len(waited) == waits
