"""Private interfaces of Ray Train: callbacks of workers."""

from functools import partial
from pathlib import Path

from ray import cloudpickle
from ray.train.v2._internal.execution.callback import WorkerCallback

from mtcon_ray.sweep.tune_private import worker_callback


def test_a_worker_callback_acts_in_the_process_that_it_is_sent_to(tmp_path: Path) -> None:
    made = worker_callback(partial(Path.touch, tmp_path / "acted"))
    sent = cloudpickle.loads(cloudpickle.dumps(made))
    assert isinstance(sent, WorkerCallback), "Train would not call it"
    sent.after_init_train_context()
    assert (tmp_path / "acted").exists()
