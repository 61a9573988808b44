"""Experiments: a table or figure of a paper, from its trainings to its files and verdicts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pandas as pd

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.data import Source
from mtcon_ray.base import metrics
from mtcon_ray.comparison.row import Row
from mtcon_ray.evaluation.intervals import Estimate, Interval, Scores

Answer = Literal[
    "holds",
    "does not hold",
    "undecided",
    "cannot be decided here",
    "not comparable",
    "not testable here",
    "not judged at this budget",
]
Author = Literal["paper", "this project"]


@dataclass(frozen=True)
class Verdict:
    """An answer to a claim.

    `paper` and `ours` are its differences as text, with units. `p` belongs to the deciding test,
    corrected by Holm. `detectable` is the difference with 80 % power in this test, as text. `why`
    has the reason for an answer without a difference. `label` is the label for readers, or "".
    `note` marks a system that learned nothing, and views that change colours.
    """

    claim: str
    answer: Answer
    paper: str = ""
    ours: str = ""
    why: str = ""
    label: str = ""
    p: str = ""
    detectable: str = ""
    author: Author = "paper"
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper: `better` scores higher than `than` on a label, as the papers name it.

    Both cells measure the label, in training or held out. `paper` is the printed difference in
    percentage points, None if the paper prints no numbers. `margin` is a fraction. `text` replaces
    the sentence without naming the label. Claims with the same `pool` and better method also make a
    claim about the mean of their labels.
    """

    better: Cell
    than: Cell
    label: str
    paper: float | None = None
    margin: float = 0.0
    text: str = ""
    pool: str = ""

    def __str__(self) -> str:
        """Returns the claim in words."""
        over = f" by {self.margin:g}" if self.margin else ""
        return self.text or f"{self.better.title} above {self.than.title}{over}"


@dataclass(frozen=True)
class Tested:
    """A claim of a positive `difference`, with its two-sided p, not yet corrected for others.

    `ours` is the difference as text for readers. `error` is its standard error, `paper` the printed
    difference, and `expected` the difference if the claim is exactly true, by default the printed
    one, all as fractions. Readers see them in percentage points, unless `in_points` is False. A
    claim with a `why` was not measured, or on too few seeds for a test. `has_classes` is False if
    the claim depends on the paper's numbers of classes, and the images have others.
    """

    claim: str
    difference: Interval | None
    ours: str = ""
    p: float | None = None
    why: str = ""
    error: Estimate | None = None
    paper: float | None = None
    label: str = ""
    author: Author = "paper"
    note: str = ""
    is_held_out: bool = False
    has_classes: bool = True
    in_points: bool = True
    expected: float | None = None


@dataclass(frozen=True)
class Trained:
    """A cell with its results. Scores are fractions, and None without a finished training."""

    cell: Cell
    source: Source | None
    row: Row

    @property
    def finished(self) -> bool:
        """True if at least one seed has finished."""
        return bool(self.row.finished)

    @property
    def complete(self) -> bool:
        """True if all seeds have finished: numbers of two systems may be paired in order."""
        results = self.row.results
        return results is not None and len(self.row.finished) == len(results.trials) > 0

    def place(self, label: str) -> tuple[str, str]:
        """Returns split and column of a label named as in the paper: test, or heldout."""
        assert self.source is not None
        split = "heldout" if label in self.cell.held_out_labels else "test"
        return split, self.source.columns[label]

    def name_label(self, label: str) -> str:
        """Returns a label's name for readers, with the column used for it."""
        return self.source.name_label(label) if self.source else label

    def reading(self, label: str) -> metrics.Reading:
        """Returns a label's mean score over seeds and its mean bootstrap deviation."""
        return self.row.reading(*self.place(label)) if self.source else metrics.Reading(None, None)

    def seeds(self, label: str) -> list[float]:
        """Returns a label's score of each seed."""
        if self.source is None:
            return []
        found = self.row.readings(*self.place(label))
        return [each.value for each in found if each.value is not None]

    def interval(self, label: str) -> Interval | None:
        """Returns a label's mean score with its 95 % interval over seeds and test items."""
        return self.row.interval(*self.place(label)) if self.source else None

    def scores(self, label: str) -> Scores | None:
        """Returns a label's scores by seed, None without a finished training or predictions."""
        return self.row.scores(*self.place(label)) if self.finished else None

    def num_classes(self, label: str) -> int:
        """Returns a label's number of classes, from the plan of the trainings."""
        results = self.row.results
        assert results is not None
        assert results.plan is not None
        return results.plan.classes[self.place(label)[1]]

    def weights(self, task: str) -> list[float]:
        """Returns the last weight of a task for each seed, in no unit, [] without a training."""
        if not self.finished:
            return []
        return self.metric(metrics.weight(metrics.slug(self.place(task)[1])))

    def metric(self, name: str) -> list[float]:
        """Returns the last epoch's value of a metric of `mtcon_ray.base.metrics`, by seed."""
        return [t.last_metrics[name] for t in self.row.finished if name in t.last_metrics]


@dataclass(frozen=True)
class Outcome:
    """Findings of an experiment: a table, pictures as PNG bytes by caption, and verdicts.

    `notes` are explanatory sentences, in a paragraph each. If `readable` exists, it replaces the
    table for readers.
    """

    table: pd.DataFrame
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    verdicts: Sequence[Verdict] = ()
    notes: Sequence[str] = ()
    readable: pd.DataFrame | None = None

    @property
    def shown(self) -> pd.DataFrame:
        """The table for readers."""
        return self.table if self.readable is None else self.readable


Finish = Callable[[Setting, Mapping[Cell, Trained]], Outcome]
Tests = Callable[[Setting, Mapping[Cell, Trained]], Sequence[Tested]]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    `name` is the name of its file. `cells` returns its trainings at a setting. `finish` makes
    table, pictures and verdicts of them, and is called again at each run. `claims` returns the
    claims about two cells, `tests` the tests of all other claims.
    """

    name: str
    title: str
    claim: str
    cells: Callable[[Setting], Iterable[Cell]]
    finish: Finish
    claims: Callable[[], Sequence[Claim]] = tuple
    tests: Tests = lambda setting, trained: ()


def described(file: str, doc: str | None) -> tuple[str, str, str]:
    """Returns name, title and claim of an experiment from its module's `__file__` and `__doc__`.

    The title is the docstring's first line without its full stop. The claim is the paragraph after
    "Claim: ".
    """
    assert doc is not None, "an experiment needs the docstring of its module"
    paragraphs = [" ".join(text.split()) for text in doc.split("\n\n")]
    (claim,) = (text for text in paragraphs if text.startswith("Claim: "))
    return Path(file).stem, paragraphs[0].rstrip("."), claim.removeprefix("Claim: ")


@dataclass(frozen=True)
class Done:
    """A finished experiment, with its outcome, its trainings, and the folder of its files."""

    experiment: Experiment
    outcome: Outcome
    trained: Mapping[Cell, Trained]
    folder: Path
