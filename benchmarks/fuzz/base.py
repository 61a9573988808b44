"""The undamaged files of the fuzzing: a directory of images with labels, and three sweeps.

    shop/      images, images.tar, labels.csv, shop.yaml and tar.yaml, as a user has them
    root/      a finished training `whole`, an interrupted training `cut`, a finished sweep `grid`

All are made in this process, without Ray.
"""

import json
import os
import signal
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import (
    PREVIOUS_FILE,
    SENT_FILE,
    checkpoint_folder,
    event_file,
    sweep_folder,
)
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep.run import run_sweep, train_once
from mtcon_ray.training import trainer

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
  held_out: [brand]
  multi_hot: {{tags: tags}}
  max_bad_images: 0.1
views: {{size: 16, crop_scale: [0.4, 1.0]}}
model: {{encoder: {{name: small, width: 4}}, head_dim: 8}}
method: {{name: mtcon, temperature: 0.1, weighting: learned}}
train: {{epochs: 3, warmup_epochs: 0, batch_size: 12, checkpoint_seconds: 0}}
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
    train_once(spec, root=root, name=WHOLE, callbacks=Callbacks())
    # The training ends in the epoch after the signal, and has two checkpoints then.
    with patch.object(trainer, "TRAIN_PER_SAVE", 0), suppress(Interrupted):
        train_once(spec, root=root, name=CUT, callbacks=Stop())
    assert (checkpoint_folder(sweep_folder(root, CUT), "trial-0000") / PREVIOUS_FILE).exists()
    run_sweep(spec, root=root, name=SWEEP, here=True, callbacks=Callbacks())
    for folder in (sweep_folder(root, name) for name in (WHOLE, CUT, SWEEP)):
        # An offline sweep has no such file, and commands show what is not sent.
        sent = {"place": "0" * 32, "offset": event_file(folder).stat().st_size}
        (folder / SENT_FILE).write_text(json.dumps(sent), encoding="utf-8")


def write_shop(folder: Path) -> None:
    """Writes images, labels and specs to a new folder."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    rows = ["image,split,colour,tags,brand"]
    for index in range(NUM_IMAGES):
        name = f"{index}.{'jpg' if index % 2 else 'png'}"
        pixels = rng.integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / name)
        split = ("train", "train", "train", "val", "test")[index % 5]
        tags, brand = ("new|red", "old")[index // 10 % 2], f"b{index // 15 % 2}"
        rows.append(",".join((name, split, f"c{index // 5 % 2}", tags, brand)))
    (folder / TABLE).write_text("\n".join(rows) + "\n", encoding="utf-8")
    with tarfile.open(folder / TAR, "w") as tar:
        for path in sorted((folder / "images").iterdir()):
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(member, file)
    for name, images in ((SPEC, "images"), (TAR_SPEC, TAR)):
        (folder / name).write_text(TEXT.format(images=images), encoding="utf-8")
