"""The undamaged files of the fuzzing: a folder of images with labels, two trainings and a sweep.

    shop/      images, images.tar, labels.csv, shop.yaml and tar.yaml, as a user has them
    root/      a finished training `whole`, an interrupted one `cut`, a finished sweep `grid`

A driver's and its trials' own functions write the sweep, but without Ray.
"""

import os
import signal
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import (
    cache_folder,
    checkpoint_folder,
    journal_file,
    parent_log,
    sweep_folder,
)
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.base.status import Status
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.display.build import build_report
from mtcon_ray.plan.local import this_machine
from mtcon_ray.plan.planning import make_plan
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Reported, Started
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.records.results import load_sweep, objective_values
from mtcon_ray.spec.run_spec import RunSpec, load_spec
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.searcher import report_missing, tell
from mtcon_ray.sweep.study import Suggester, open_study
from mtcon_ray.sweep.training_job import train_run
from mtcon_ray.tracking.provenance import FINGERPRINT
from mtcon_ray.training.checkpoint import discard_resume_state
from mtcon_ray.training.trainer import Trainer

SPEC, TAR_SPEC, TABLE, TAR = "shop.yaml", "tar.yaml", "labels.csv", "images.tar"
WHOLE, CUT, SWEEP = "whole", "cut", "grid"
NUM_IMAGES, SIDE = 60, 24
TEXT = """\
name: shop
data:
  kind: table
  csv: labels.csv
  images: {images}
  tasks: [colour, tags]
  held_out: [price]
  multi_hot: {{tags: tags}}
  continuous: [price]
  max_bad_images: 0.1
views: {{size: 16, crop_scale: [0.4, 1.0]}}
model: {{encoder: {{name: small, width: 4}}, head_dim: 8}}
method: {{name: mtcon, temperature: 0.1, weighting: learned}}
train: {{epochs: 3, warmup_epochs: 0, batch_size: 12}}
evaluate: {{bootstrap: 20}}
resources: {{cpus: 1}}
search:
  sampler: grid
  space: {{method.temperature: {{grid: [0.1, 0.5]}}}}
tracking: {{offline: true, system_metrics: false}}
storage: {{root: ../root}}
"""


class Stop(Callbacks):
    """Interrupts a training, as SIGTERM does, after its second epoch."""

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        if epoch == 2:
            signal.raise_signal(signal.SIGTERM)


def write_base(folder: Path) -> None:
    """Writes everything to a new folder. Trains, so it should run in a separate process."""
    torch.set_num_threads(1)
    shop, root = folder / "shop", folder / "root"
    write_shop(shop)
    # With relative recorded paths, a copy of the folder reads its own files.
    os.chdir(shop)
    spec = load_spec(Path(SPEC))
    train_run(spec, root=root, name=WHOLE, callbacks=Callbacks())
    try:
        train_run(spec, root=root, name=CUT, callbacks=Stop())
    except Interrupted:
        pass
    else:
        raise AssertionError("the training must be interrupted")
    _write_sweep(spec, root)


def write_shop(folder: Path) -> None:
    """Writes images, labels and specs to a new folder."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    rows = ["image,split,colour,tags,price"]
    for index in range(NUM_IMAGES):
        name = f"{index}.{'jpg' if index % 2 else 'png'}"
        pixels = rng.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / name)
        split = ("train", "train", "train", "val", "test")[index % 5]
        cells = (name, split, f"c{index // 5 % 2}", ("new|red", "old")[index // 10 % 2], index / 4)
        rows.append(",".join(map(str, cells)))
    (folder / TABLE).write_text("\n".join(rows) + "\n", encoding="utf-8")
    with tarfile.open(folder / TAR, "w") as tar:
        for path in sorted((folder / "images").iterdir()):
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(member, file)
    for name, images in ((SPEC, "images"), (TAR_SPEC, TAR)):
        (folder / name).write_text(TEXT.format(images=images), encoding="utf-8")


def _write_sweep(spec: RunSpec, root: Path) -> None:
    folder = sweep_folder(root, SWEEP)
    dataset = open_dataset(spec.data, view_size=spec.views.size, store=cache_folder(root))
    plan = make_plan(spec, root, this_machine(), dataset.table)
    folder.mkdir(parents=True)
    write_beginnings(folder, spec, plan)
    parent = EventLog(parent_log(folder))
    parent.append(Started(params={}, tags={FINGERPRINT: dataset.fingerprint}))
    study, record = open_study(journal_file(folder), folder.name), SweepRecord(folder, spec)
    suggester = Suggester(study, spec.search, spec.seed)
    for number in range(plan.num_trials):
        trial = suggester.next()
        assert trial is not None
        record.trial_started(trial)
        log, name = record.spool(trial), f"trial-{number:04d}"
        _train(spec.trial(trial.params), dataset, checkpoint_folder(folder, name), log)
        values = record.values(trial)
        report_missing(study, trial, values)
        tell(study, trial, Status.FINISHED, values[spec.train.epochs], None)
        record.trial_ended(trial, Status.FINISHED, None)
    build_report(load_sweep(folder), ui_command="")
    record.end("FINISHED", None)


def _train(spec: RunSpec, dataset: Dataset, folder: Path, log: EventLog) -> None:
    folder.mkdir(parents=True)
    trainer = Trainer(spec, dataset, folder, device=torch.device("cpu"))
    for progress in trainer:
        metrics: dict[str, Any] = dict(progress.metrics)
        if progress.done:
            metrics |= trainer.report()
        log.append(Reported(epoch=progress.epoch, metrics=metrics))
    assert objective_values([(spec.train.epochs, metrics)])
    discard_resume_state(folder)
