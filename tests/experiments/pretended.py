"""Settings and cells with results that no training produced."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.reproduction.budgets import BUDGETS
from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.data import DataChoice
from experiments.reproduction.experiment import Trained
from mtcon_ray.base import metrics
from mtcon_ray.comparison.row import Row
from mtcon_ray.plan.plan import Plan
from tests.recorded import results_of, save_wrong, trial_of

NUM_ITEMS = 400


def setting(root: Path, budget: str = "smoke", *overrides: str, only: str = "synthetic") -> Setting:
    """Returns a setting with images of one kind; photographs are below root/photos, if there."""
    photos = root / "photos"
    choice = DataChoice(only, photos if photos.exists() else None, None, root / "subsets")
    return Setting(BUDGETS[budget], choice, root, overrides)


def trained(
    where: Setting, cell: Cell, accuracies: Sequence[float], *, plan: Plan | None = None,
    weights: Mapping[str, float] = {},
) -> Trained:  # fmt: skip
    """Returns a cell with an accuracy per seed in all labels; without any, it has failed.

    A label set has the mean average precision, half of it as F1, and 0.1 more on train. `weights`
    are the learned weights by column.
    """
    spec = where.spec_of(cell)
    folder, trials = where.root / where.name_of(cell), []
    for seed, accuracy in enumerate(accuracies):
        values, wrong = {"val/accuracy": accuracy, metrics.PROBE_FEATURES: 64.0}, {}
        values |= {metrics.weight(column): weight for column, weight in weights.items()}
        for column, kind in spec.labels.kinds.items():
            split = "test" if column in spec.data.tasks else "heldout"
            values[metrics.score(kind, split, column)] = accuracy
            values[metrics.score_std(kind, split, column)] = 0.02
            if kind == "set":
                values |= {
                    metrics.retrieval(split, m, column): accuracy / 2
                    for m in ("f1_micro", "f1_macro")
                }
                values[metrics.score(kind, "train", column)] = accuracy + 0.1
            wrong[split, column] = np.arange(NUM_ITEMS) >= round(accuracy * NUM_ITEMS)
        trials.append(trial_of(seed, 1, values, seed=seed))
        save_wrong(folder / "checkpoints" / trials[-1].name / "predictions.npz", wrong)
    row = Row(where.name_of(cell), results_of(spec, *trials, folder=folder, plan=plan))
    failed = Row(where.name_of(cell), None, "diverged\nin step 3")
    return Trained(cell, where.source(cell.data), row if trials else failed)


def all_trained(
    where: Setting, cells: Sequence[Cell], accuracies: Mapping[Cell, Sequence[float]]
) -> dict[Cell, Trained]:
    """Returns all cells trained; those without own accuracies have 0.5 for each seed."""
    default = [0.5] * where.budget.seeds
    return {cell: trained(where, cell, accuracies.get(cell, default)) for cell in cells}
