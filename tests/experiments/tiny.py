"""Cells that are really trained, on a few synthetic images for one epoch, without Ray."""

from collections.abc import Iterable
from pathlib import Path

import torch

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.experiment import Trained
from mtcon_ray.base.paths import cache_folder, checkpoint_folder
from mtcon_ray.comparison.row import Row
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.training.trainer import Trainer
from tests.experiments.pretended import setting
from tests.recorded import results_of, trial_of

SMALL = ("data.num_items=100", "train.epochs=1", "evaluate.bootstrap=10")


def tiny_setting(root: Path) -> Setting:
    """Returns a setting with one seed, few images, and one epoch for every cell."""
    return setting(root, "smoke", *SMALL)


def train(where: Setting, cells: Iterable[Cell]) -> dict[Cell, Trained]:
    """Returns cells with one training each, whose network is kept; nothing is tested."""
    found = {}
    for cell in cells:
        spec = where.spec_of(cell)
        folder = where.root / "sweeps" / spec.name
        dataset = open_dataset(spec.data, view_size=spec.views.size, store=cache_folder(where.root))
        kept = checkpoint_folder(folder, "trial-0000")
        trainer = Trainer(spec, dataset, kept, device=torch.device("cpu"))
        list(trainer)  # nothing if another test has trained the cell
        assert trainer.last is not None
        trial = trial_of(0, trainer.last.epoch, trainer.last.metrics, seed=spec.seed)
        results = results_of(spec, trial, folder=folder)
        found[cell] = Trained(cell, where.source(cell.data), Row(spec.name, results))
    return found
