"""Experiments with a varied field of a training: a curve per label, claims about its shape."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from experiments.reproduction.cells import BASELINES, Cell, Setting
from experiments.reproduction.data import DATA_SETS
from experiments.reproduction.experiment import Experiment, Outcome, Tested, Trained
from experiments.reproduction.figures import Curve, CurvePanel, curves_figure, level
from experiments.reproduction.interval_table import interval_columns, percent_of, readable
from experiments.reproduction.trends import (
    combined,
    decided,
    difference_tested,
    fitted_change,
    interval_of,
    mean_of,
)
from mtcon_ray.evaluation.intervals import Scores

MEAN = "mean of all tasks"
BANDS_NOTE = (
    "Bands and square brackets: 95 % intervals over seeds and test items, with one seed over the "
    "items alone."
)


def means_of(by_label: Mapping[str, Sequence[Scores | None]]) -> list[Scores | None]:
    """Returns the mean of the labels' scores at each position."""
    return [mean_of(scores) for scores in zip(*by_label.values(), strict=True)]


@dataclass(frozen=True)
class Measured:
    """The scores of a grid, by label and value, None after a failed training."""

    values: tuple[float, ...]
    by_label: Mapping[str, Sequence[Scores | None]]

    @property
    def means(self) -> list[Scores | None]:
        """The mean of the labels' scores, by value."""
        return means_of(self.by_label)

    def rises_with(self, what: str) -> list[Tested]:
        """Returns the tests of the mean's rise with the value, and of its end above its start."""
        first, last = self.values[0], self.values[-1]
        rises = f"accuracy rises with the {what}, {MEAN}"
        above = f"{what} {last:g} above {first:g}, {MEAN}"
        return [
            difference_tested(rises, combined(fitted_change, self.means)),
            difference_tested(above, self.difference(last, first)),
        ]

    def difference(self, value: float, than: float) -> Scores | None:
        """Returns the paired difference of the means at two values."""
        pair = [self.means[self.values.index(each)] for each in (value, than)]
        return combined(lambda s: s[0] - s[1], pair)


@dataclass(frozen=True)
class Grid:
    """Values of a field, with the training at each value, and the claims about its effect.

    `cell` is called with setting, data set and value.
    """

    data: str
    x_label: str
    values: Callable[[Setting], tuple[float, ...]]
    cell: Callable[[Setting, str, float], Cell]
    tests: Callable[[Measured], list[Tested]]
    notes: tuple[str, ...] = ()

    def experiment(self, described: tuple[str, str, str]) -> Experiment:
        """Returns the experiment with this name, title and claim."""
        return Experiment(*described, self.cells, self.finish, tests=self.tested)

    def cells(self, setting: Setting) -> list[Cell]:
        """Returns the training of each value, and the baselines."""
        trained = [self.cell(setting, self.data, value) for value in self.values(setting)]
        return [*trained, *(Cell(self.data, system) for system in BASELINES)]

    def tested(self, setting: Setting, trained: Mapping[Cell, Trained]) -> list[Tested]:
        """Returns the tests on the trainings of all values."""
        values = self.values(setting)
        grid = [trained[self.cell(setting, self.data, value)] for value in values]
        return self.tests(Measured(values, self._scores(grid)))

    def finish(self, setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
        """Returns table, picture and verdicts."""
        values = self.values(setting)
        found = [trained[cell] for cell in self.cells(setting)]
        grid, baselines = found[: len(values)], found[len(values) :]
        names: list[float | str] = [*values, *(each.cell.title for each in baselines)]
        table = pd.DataFrame(self._rows(names, found))
        measured = Measured(values, self._scores(grid))
        pictures = {}
        if all(each.finished for each in found):
            caption = f"Accuracy by {self.x_label.partition(' (')[0]}"
            pictures[caption] = self._draw(measured, baselines)
        notes = (*self.notes, BANDS_NOTE)
        verdicts = decided(setting, self.tested(setting, trained))
        return Outcome(table, pictures, verdicts, notes, readable=readable(table))

    def _scores(self, found: Sequence[Trained]) -> dict[str, list[Scores | None]]:
        return {
            label: [each.scores(label) for each in found] for label in DATA_SETS[self.data].tasks
        }

    def _rows(
        self, names: Sequence[float | str], found: Sequence[Trained]
    ) -> list[dict[str, object]]:
        by_label = self._scores(found)
        columns = {**by_label, MEAN: means_of(by_label)}
        return [
            {self.x_label: name, "seeds": len(each.row.finished)}
            | {
                column: number
                for label, scores in columns.items()
                for column, number in interval_columns(
                    f"{label} (%)", percent_of(interval_of(scores[i]))
                ).items()
            }
            for i, (name, each) in enumerate(zip(names, found, strict=True))
        ]

    def _draw(self, measured: Measured, baselines: Sequence[Trained]) -> bytes:
        xs, source = measured.values, baselines[0].source
        assert source is not None
        panels = [
            CurvePanel(
                source.name_label(label),
                "accuracy (%)",
                {
                    "mean over seeds, 95 % band": Curve(
                        xs, [percent_of(interval_of(each)) for each in scores]
                    )
                },
                {each.cell.title: level(xs, each.interval(label)) for each in baselines},
            )
            for label, scores in measured.by_label.items()
        ]
        return curves_figure(panels, self.x_label, log=True)
