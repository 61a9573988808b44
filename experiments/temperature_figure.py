"""MSCon, figure 4, and MTCon, figure 6, top: accuracy of each task against the temperature.

    python experiments/temperature_figure.py --budget small --photos FOLDER

Cost: 7 trainings a seed, 3 at smoke, and the two baselines. On two cores a minute at smoke.

Claim: a temperature of 0.1 is best, far lower and far higher ones are worse.

Both figures are on UT Zappos50K. MSCon is Mu et al. 2023, arXiv:2307.02712. The papers print
neither the accuracies nor the other temperatures. They say that 0.1 works well. Its advantage over
every other temperature is a claim of this project.
"""

from dataclasses import replace

from experiments.reproduction.cells import TEMPERATURE, Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.experiment import Tested, described
from experiments.reproduction.grids import Grid, Measured
from experiments.reproduction.trends import differences_tested

FEW, ALL = (0.03, 0.1, 1.0), (0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0)


def values(setting: Setting) -> tuple[float, ...]:
    """Returns the temperatures."""
    return FEW if setting.budget.name == "smoke" else ALL


def cell(setting: Setting, data: str, value: float) -> Cell:
    """Returns the training at a temperature."""
    changes = () if value == TEMPERATURE else (("method.temperature", value),)
    return Cell(data, "mtcon", changes=changes)


def tests(measured: Measured) -> list[Tested]:
    """Returns a test for each other temperature, on the mean of all tasks."""
    claims = {
        f"temperature {TEMPERATURE:g} above {value:g}, mean of all tasks": measured.difference(
            TEMPERATURE, value
        )
        for value in measured.values
        if value != TEMPERATURE
    }
    return [replace(each, author="this project") for each in differences_tested(claims)]


def of(data: str) -> Grid:
    """Returns the grid on a data set of the papers."""
    return Grid(data, "temperature (no unit)", values, cell, tests)


EXPERIMENT = of("zappos50k").experiment(described(__file__, __doc__))

if __name__ == "__main__":
    main(EXPERIMENT)
