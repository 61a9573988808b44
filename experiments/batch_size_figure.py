"""MTCon, remark on batches: accuracy of each task against the batch size.

    python experiments/batch_size_figure.py --budget small --photos FOLDER

Cost: 5 trainings a seed, 3 at smoke, and the two baselines. On two cores a minute at smoke.

Claim: larger batches give higher accuracy.

MSCon and MTCon train with 64 images and quote this claim from prior work. MultiSupCon tried several
batch sizes. None of the papers shows accuracies.
"""

import math

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.experiment import Tested, described
from experiments.reproduction.grids import Grid, Measured

VALUES = {"smoke": (16, 32, 64), "small": (16, 32, 64, 128, 256), "paper": (16, 32, 64, 128, 256)}
NOTE = (
    "All trainings have the same number of epochs, so a larger batch has fewer steps. Where the "
    "learning rate is not tuned, it grows with the square root of the batch size."
)


def values(setting: Setting) -> tuple[float, ...]:
    """Returns the batch sizes."""
    return VALUES[setting.budget.name]


def cell(setting: Setting, data: str, value: float) -> Cell:
    """Returns the training with this batch size, and with its rate unless the rate is tuned."""
    budget, size = setting.budget, round(value)
    usual = {**budget.base, **budget.families.get("contrastive", {})}
    if size == usual["train.batch_size"]:
        return Cell(data, "mtcon")
    if budget.rates:
        return Cell(data, "mtcon", changes=(("train.batch_size", size),))
    lr = round(usual["train.lr"] * math.sqrt(size / usual["train.batch_size"]), 4)
    return Cell(data, "mtcon", changes=(("train.batch_size", size), ("train.lr", lr)))


def tests(measured: Measured) -> list[Tested]:
    """Returns the tests on the mean of all tasks."""
    return measured.rises_with("batch size")


EXPERIMENT = Grid("medic", "batch size (images)", values, cell, tests, (NOTE,)).experiment(
    described(__file__, __doc__)
)

if __name__ == "__main__":
    main(EXPERIMENT)
