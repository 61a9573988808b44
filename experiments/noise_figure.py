"""MSCon, figure 3: task weights and accuracies against wrong labels of one task.

    python experiments/noise_figure.py --budget small --photos FOLDER

Cost: 24 trainings a seed, 12 at smoke, and the two baselines of each data set. On two cores less
than 5 minutes at smoke.

Claim: as the labels of a task become wrong its learned weight falls, the held-out label then loses
less than with equal weights, and the accuracy on the wrong labels falls to chance.

Figure 3 of MSCon (Mu et al. 2023, arXiv:2307.02712) and of MTCon, which print no numbers for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from experiments.reproduction.cells import BASELINES, Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.data import DATA_SETS
from experiments.reproduction.experiment import Experiment, Outcome, Tested, Trained, described
from experiments.reproduction.figures import Curve, CurvePanel, curves_figure, fixed, level
from experiments.reproduction.interval_table import interval_columns, percent_of, readable
from experiments.reproduction.trends import (
    alike_tested,
    changes_of,
    combined,
    decided,
    difference_tested,
    differences_tested,
    fitted_change,
    interval_of,
    mean_of,
    over_seeds,
    seeds_tested,
)
from mtcon_ray.evaluation.intervals import Interval, Scores

EQUAL, LEARNED = "equal weights", "learned weights"
WEIGHTINGS = {EQUAL: "mtcon-equal", LEARNED: "mtcon"}
FEW_SHARES, ALL_SHARES = (0.0, 0.5, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# MTCon sees "no meaningful difference" between weightings on the task with wrong labels. The paper
# names no margin.
ALIKE_POINTS = 2.0
CEILING = "ceiling, perfect features"
NOTES = (
    "Wrong labels: this share of the training labels of one task is redrawn, uniformly over its "
    "K classes, once for all weightings and seeds, so that bands leave out what another draw would "
    "do. The papers do not print their shares.",
    "The accuracy on wrong labels is the expectation over test labels that are redrawn in the same "
    "way, (1 - share) times the accuracy on right ones plus share / K. If all labels are wrong it "
    "is therefore 1 / K by construction. The probe is fitted on the wrong labels of training.",
    "The papers name no margin for equal accuracies on wrong labels. The margin of "
    f"{ALIKE_POINTS:g} points is chosen here. At a share of 100 % both weightings have 1 / K by "
    "construction, and at 0 % there are no wrong labels. Neither share is part of this test.",
    "Bands: 95 % intervals over seeds and test items; of weights, over seeds by Student's t.",
)


@dataclass(frozen=True)
class Case:
    """A data set, the task with wrong labels, and the evaluated held-out label.

    `leaves_out` is the held-out label if it is a task of the data set.
    """

    data: str
    wrong: str
    read: str
    leaves_out: str | None = None

    def cell(self, weighting: str, share: float) -> Cell:
        """Returns the training with this share of wrong labels."""
        noise = ((self.wrong, share),) if share else ()
        return Cell(self.data, WEIGHTINGS[weighting], self.leaves_out, noise)

    def baselines(self) -> list[Cell]:
        """Returns the systems without training, which treat held-out labels like other labels."""
        return [Cell(self.data, system) for system in BASELINES]


CASES = (
    Case("zappos50k", wrong="closure", read="brand"),
    Case("medic", "disaster_types", "damage_severity", leaves_out="damage_severity"),
)


@dataclass(frozen=True)
class Point:
    """The results of a weighting at a share of wrong labels."""

    case: Case
    share: float
    trained: Trained

    def scores(self, label: str) -> Scores | None:
        """Returns the accuracies of a label with correct test labels."""
        return self.trained.scores(label)

    def scores_on_wrong(self) -> Scores | None:
        """Returns the expected accuracies on test labels redrawn as in training.

        A redrawn label does not depend on the image. Any prediction equals it with chance 1 / K.
        """
        found = self.scores(self.case.wrong)
        return found and combined(lambda s_P: self.expected(s_P[0]), [found])

    def expected(self, accuracy: np.ndarray) -> np.ndarray:
        """Returns the accuracy on redrawn labels, computed from the accuracy on correct labels."""
        chance = 1 / self.trained.num_classes(self.case.wrong)
        return (1 - self.share) * accuracy + self.share * chance

    def weights(self) -> list[float]:
        """Returns the weight of the task with wrong labels, as a share of all, by seed."""
        by_task = {task: self.trained.weights(task) for task in self.trained.cell.tasks}
        sums = map(sum, zip(*by_task.values(), strict=True))
        return [w / total for w, total in zip(by_task[self.case.wrong], sums, strict=True)]

    def intervals(self) -> dict[str, Interval | None]:
        """Returns the quantities of the figure's panels in percent, by their key."""
        found = {
            "weight": over_seeds(self.weights()),
            "read": interval_of(self.scores(self.case.read)),
            "on wrong": interval_of(self.scores_on_wrong()),
            "on right": interval_of(self.scores(self.case.wrong)),
        }
        return {key: percent_of(interval) for key, interval in found.items()}


def shares(setting: Setting) -> tuple[float, ...]:
    """Returns the shares of wrong labels."""
    return FEW_SHARES if setting.budget.name == "smoke" else ALL_SHARES


def cells(setting: Setting) -> list[Cell]:
    """Returns the trainings of all weightings at all shares, and the baselines."""
    return [
        *(case.cell(w, share) for case in CASES for w in WEIGHTINGS for share in shares(setting)),
        *(cell for case in CASES for cell in case.baselines()),
    ]


def points_of(
    setting: Setting, case: Case, trained: Mapping[Cell, Trained]
) -> dict[str, list[Point]]:
    """Returns the results at all shares, by weighting."""
    return {
        weighting: [Point(case, s, trained[case.cell(weighting, s)]) for s in shares(setting)]
        for weighting in WEIGHTINGS
    }


def tests(setting: Setting, trained: Mapping[Cell, Trained]) -> list[Tested]:
    """Returns the tests of all claims."""
    return [each for case in CASES for each in tests_of(case, points_of(setting, case, trained))]


def finish(setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
    """Returns a table row per training, a picture per data set, and the verdicts."""
    rows, pictures = [], {}
    for case in CASES:
        points = points_of(setting, case, trained)
        baselines = {c.title: [Point(case, 0.0, trained[c])] for c in case.baselines()}
        rows += table_rows({**points, **baselines})
        both = (*points.values(), *baselines.values())
        if all(point.trained.finished for line in both for point in line):
            pictures[f"Wrong labels of {case.wrong}"] = draw(case, points, baselines)
    table = pd.DataFrame(rows)
    verdicts = decided(setting, tests(setting, trained))
    return Outcome(table, pictures, verdicts, NOTES, readable=readable(table))


def table_rows(points: Mapping[str, list[Point]]) -> list[dict[str, object]]:
    """Returns a row for each weighting and share, in percent."""
    return [
        {
            "data": DATA_SETS[point.case.data].title,
            "wrong": point.trained.name_label(point.case.wrong),
            "weighting": weighting,
            "wrong labels (%)": round(100 * point.share),
            "seeds": len(point.trained.row.finished),
            **interval_columns("weight, of all (%)", found["weight"]),
            **interval_columns("held-out label (%)", found["read"]),
            **interval_columns("on wrong labels (%)", found["on wrong"]),
            **interval_columns("on right labels (%)", found["on right"]),
        }
        for weighting, line in points.items()
        for point in line
        for found in [point.intervals()]
    ]


def draw(
    case: Case, points: Mapping[str, list[Point]], baselines: Mapping[str, list[Point]]
) -> bytes:
    """Draws weight, held-out accuracy and the accuracies of the task, and returns a PNG.

    Wrong labels of a task do not affect the held-out scores of systems without training.
    """
    first = next(iter(points.values()))
    xs = [100 * point.share for point in first]
    wrong, read = map(first[0].trained.name_label, (case.wrong, case.read))
    ceiling = [float(100 * point.expected(np.ones(()))) for point in first]

    def curves(key: str) -> dict[str, Curve]:
        return {w: Curve(xs, [p.intervals()[key] for p in line]) for w, line in points.items()}

    panels = [
        CurvePanel(f"weight of {wrong}", "share of all weights (%)", curves("weight")),
        CurvePanel(
            f"{read}, held out", "accuracy (%)", curves("read"),
            {n: level(xs, point.trained.interval(case.read)) for n, [point] in baselines.items()},
        ),
        CurvePanel(
            f"{wrong}, wrong test labels", "accuracy (%)", curves("on wrong"),
            {CEILING: fixed(xs, ceiling)},
        ),
        CurvePanel(f"{wrong}, right test labels", "accuracy (%)", curves("on right")),
    ]  # fmt: skip
    return curves_figure(panels, f"wrong training labels of {wrong} (%)")


def tests_of(case: Case, points: Mapping[str, list[Point]]) -> list[Tested]:
    """Returns the tests on weights, on the held-out label and on the wrong task's accuracy."""
    first = points[EQUAL][0].trained
    wrong, read = map(first.name_label, (case.wrong, case.read))
    where = f"{DATA_SETS[case.data].title}, {wrong} wrong"
    weights = [p.weights() if p.trained.complete else [] for p in points[LEARNED]]
    text = f"{where}: the weight of the task falls with {LEARNED}"
    found = [seeds_tested(text, [-change for change in changes_of(weights)])]
    corners = (points[w][i].scores(case.read) for w in (LEARNED, EQUAL) for i in (-1, 0))
    text = f"{where}: {read}, held out, loses less with {LEARNED} than with {EQUAL}"
    saved = combined(lambda s: (s[0] - s[1]) - (s[2] - s[3]), list(corners))
    found.append(replace(difference_tested(text, saved), is_held_out=True))
    falls = {
        f"{where}: the accuracy on wrong labels falls with {weighting}": combined(
            lambda s: -fitted_change(s), [point.scores_on_wrong() for point in line]
        )
        for weighting, line in points.items()
    }
    found += differences_tested(falls)
    both = [
        mean_of([point.scores_on_wrong() for point in points[weighting] if 0 < point.share < 1])
        for weighting in (LEARNED, EQUAL)
    ]
    text = (
        f"{where}: {LEARNED} and {EQUAL} within {ALIKE_POINTS:g} points on wrong labels, mean of "
        "the shares between 0 and 1"
    )
    found.append(alike_tested(text, combined(lambda s: s[0] - s[1], both), ALIKE_POINTS / 100))
    return found


EXPERIMENT = Experiment(*described(__file__, __doc__), cells, finish, tests=tests)

if __name__ == "__main__":
    main(EXPERIMENT)
