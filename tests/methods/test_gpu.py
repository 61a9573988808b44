"""Training on a GPU: no step has a device synchronisation. Needs a CUDA device.

Without a GPU, tests/training/test_step_graph.py checks that no step reads a value of the device.
"""

from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.testing import start
from mtcon_ray.training.trainer import Trainer
from tests.methods.cases import EACH, WITH_OWN_STATE, make_data, make_spec

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]

CHUNKS = {"train.chunk_size": 8, "model.batch_norm": "local"}
OTHER_STEPS: list[tuple[str, dict[str, Any]]] = [
    ("mtcon", CHUNKS),
    ("moco", CHUNKS),
    ("mtcon", {"train.precision": "float32"}),
    ("moco", {"train.precision": "float16"}),
    ("mtcon", {"train.optimizer": "lars", "train.max_grad_norm": 1.0}),
]


def run_on_gpu(spec: RunSpec, store: Path, folder: Path) -> Trainer:
    run = Trainer(spec, make_data(spec, store), folder / "run", device=torch.device("cuda", 0))
    run.resume()
    return run


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in EACH), *OTHER_STEPS])
def test_no_step_waits(name: str, changes: dict[str, Any], store: Path, tmp_path: Path) -> None:
    """This includes labels, images, views, seeds and sums over steps."""
    run = run_on_gpu(with_values(make_spec(name), changes), store, tmp_path)
    for step in range(3):  # the first two steps choose algorithms and fill the allocator's cache
        torch.cuda.set_sync_debug_mode("error" if step == 2 else "default")
        try:
            run._train_step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    run.learner.watch.check()


@pytest.mark.parametrize("name", WITH_OWN_STATE)
def test_a_training_of_a_cpu_continues_on_a_gpu(name: str, store: Path, tmp_path: Path) -> None:
    """It resumes from a checkpoint within an epoch, and trains and evaluates to the end."""
    spec = make_spec(name)
    stops = chain(repeat(False, 5), [True])
    begun = start(spec, store, tmp_path / "run", should_stop=partial(next, stops))
    assert len(list(begun)) == 1
    run = run_on_gpu(spec, store, tmp_path)
    assert run.step == begun.step == 5
    (last,) = run
    assert last.done
    found = {tuple(metric.split("/")[::2]) for metric in run.report()}
    assert found >= {("test", task) for task in spec.data.tasks or ()}
