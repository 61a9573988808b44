"""MSCon, figure 4, and MTCon, figure 6, bottom: accuracy of each task against the number of epochs.

    python experiments/epochs_figure.py --budget small --photos FOLDER

Cost: 5 trainings a seed at small (as long as 8 usual trainings), 3 at smoke, 6 at paper, and
the two baselines. On two cores a minute at smoke.

Claim: longer training gives higher accuracy.

Both figures are on UT Zappos50K. MSCon is Mu et al. 2023, arXiv:2307.02712. The papers chose 200
epochs. They print neither the accuracies nor the other numbers of epochs.
"""

from functools import partial

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.experiment import Tested, described
from experiments.reproduction.grids import Grid, Measured

VALUES = {
    "smoke": (1, 2, 4),
    "small": (3, 6, 12, 24, 48),
    "paper": (25, 50, 100, 150, 200, 300),
}
NOTE = "Each number of epochs is a training with a cosine schedule of its own length."


def values(setting: Setting, data: str) -> tuple[float, ...]:
    """Returns the numbers of epochs, at most four times the usual number on a data set."""
    budget = setting.budget
    return tuple(n for n in VALUES[budget.name] if n <= 4 * budget.epochs_on(data))


def cell(setting: Setting, data: str, value: float) -> Cell:
    """Returns the training of this many epochs."""
    epochs = round(value)
    changes = () if epochs == setting.budget.epochs_on(data) else (("train.epochs", epochs),)
    return Cell(data, "mtcon", changes=changes)


def tests(measured: Measured) -> list[Tested]:
    """Returns the tests on the mean of all tasks."""
    return measured.rises_with("number of epochs")


def of(data: str) -> Grid:
    """Returns the grid on a data set of the papers."""
    return Grid(data, "epochs", partial(values, data=data), cell, tests, (NOTE,))


EXPERIMENT = of("zappos50k").experiment(described(__file__, __doc__))

if __name__ == "__main__":
    main(EXPERIMENT)
