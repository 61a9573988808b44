"""Two workers of which one writes in the background: both yield an epoch between the same steps."""

import json
from pathlib import Path
from time import sleep
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from mtcon_ray.base.paths import LAST_FILE
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training import checkpoint, distributed
from mtcon_ray.training.distributed import Ranks
from mtcon_ray.training.trainer import Trainer

STEPS = 11  # of an epoch


def work(rank: int, folder: Path, spec: RunSpec) -> None:
    """Writes each yielded epoch, the step, and the epoch that is on disk."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=2)
    save, seen = checkpoint.save, []

    def slow(path: Path, *given: Any, **options: Any) -> None:
        sleep(0.25)
        save(path, *given, **options)

    def takes_time() -> bool:
        sleep(0.1)  # a step's
        return False

    dataset = open_dataset(spec.data, view_size=spec.views.size, store=folder / f"store-{rank}")
    # Ranks ask each other in every step.
    with patch.object(checkpoint, "save", slow), patch.object(distributed, "EXCHANGE_SECONDS", 0):
        run = Trainer(
            spec, dataset, folder / "run", device=torch.device("cpu"), ranks=Ranks(rank, 2),
            should_stop=takes_time, background=True,
        )  # fmt: skip
        for progress in run:
            on_disk = torch.load(run.folder / LAST_FILE, weights_only=True)["last"]["epoch"]
            seen.append([progress.epoch, run.step, on_disk])
    (folder / f"{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


@pytest.mark.slow
def test_an_epoch_is_yielded_by_both_when_one_has_written_it(spec: RunSpec, tmp_path: Path) -> None:
    """Two files of a quarter of a second are written while steps of a tenth of a second go on."""
    spec = with_values(spec, {"train.epochs": 2, "train.batch_size": 6, "evaluate.every": 1})
    spawn(work, args=(tmp_path, spec), nprocs=2)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert [each[:2] for each in first] == [each[:2] for each in second]
    (one, step, on_disk), last = first
    assert one == on_disk == 1
    assert STEPS + 1 < step < 2 * STEPS
    assert last == [2, 2 * STEPS, 2]
