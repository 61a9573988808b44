"""Differences that an experiment's claims will detect, before its trainings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap

import numpy as np
import pandas as pd

from experiments.reproduction.budgets import BUDGETS
from experiments.reproduction.cells import Cell, Setting, unique
from experiments.reproduction.experiment import Experiment, Trained
from experiments.reproduction.judging import in_points
from mtcon_ray.base.metrics import Reading
from mtcon_ray.comparison.claims import ITEM_DEVIATION, SEED_DEVIATION, planned
from mtcon_ray.comparison.row import Row
from mtcon_ray.evaluation.intervals import Estimate, Scores, detectable

COLUMNS = 100  # of a terminal
PLACES = 1000  # more than the scores of any experiment's claims
NO_SIZE = "no estimate"
MEAN = ", mean of "  # in a claim about several labels
RANDOM_START = (
    "Claims about held-out labels will be not comparable: the networks have a random start."
)


@dataclass(frozen=True)
class Asked:
    """A claim with its printed and its detectable difference as text, "" if unknown.

    `is_smaller` is True if the printed difference is smaller than the detectable difference.
    """

    claim: str
    label: str
    printed: str
    size: str
    is_smaller: bool


@dataclass(frozen=True)
class Planned(Trained):
    """A cell before its training, for reading off a test's coefficients.

    The scores of each cell and label are a unit vector over the resamples, and zero over all. So
    the variance of a linear combination of scores over the resamples is the sum of its squared
    coefficients, if they add up to zero. `places` numbers the vectors of an experiment.
    """

    num_seeds: int = 0
    places: dict[tuple[Cell, str], int] = field(default_factory=dict, compare=False)

    @property
    def finished(self) -> bool:
        return True

    @property
    def complete(self) -> bool:
        return True

    def reading(self, label: str) -> Reading:
        return Reading(None, None)

    def seeds(self, label: str) -> list[float]:
        return self.metric(label)

    def scores(self, label: str) -> Scores:
        place = self.places.setdefault((self.cell, label), len(self.places))
        drawn_SK = np.zeros((self.num_seeds, PLACES))
        drawn_SK[:, place] = math.sqrt(PLACES - 1)
        item = np.arange(PLACES)  # many, as for the exact variance
        return Scores(tuple(range(self.num_seeds)), drawn_SK[:, 0] * 0, drawn_SK, item, item)

    def num_classes(self, label: str) -> int:
        return 1  # a chance level, which cancels in a difference

    def metric(self, name: str) -> list[float]:
        return [1.0] * self.num_seeds


def power_lines(
    experiment: Experiment, setting: Setting, missing: Mapping[Cell, Row], num_items: int
) -> list[str]:
    """Returns a line for each claim with its detectable difference, equal differences together.

    `missing` has the cells without images.
    """
    recorded = setting.folder / experiment.name / "claims.csv"
    asked = [
        *asked_tests(experiment, setting, missing, num_items),
        *asked_claims(experiment, setting, missing, num_items),
    ]
    found = recorded_claims(recorded) if recorded.is_file() else []
    has_all = {(each.claim, each.label) for each in asked} <= {(e.claim, e.label) for e in found}
    if found and has_all and setting.budget == BUDGETS[setting.budget.name]:
        asked, origin = found, f"of {recorded}"
    else:
        origin = (
            "no such claims are recorded, so deviations are assumed: "
            f"{100 * ITEM_DEVIATION:g} points of a difference per test item, "
            f"{100 * SEED_DEVIATION:g} points of a training per seed; "
            f"{setting.budget.seeds} seeds, {num_items:,} test items, or more"
        )
    if not asked:
        return []
    text = f"Detectable differences, 80 % power after Holm's correction ({origin}):"
    are_held_out = (claim.label in claim.better.held_out_labels for claim in experiment.claims())
    note = [] if setting.budget.is_pretrained or not any(are_held_out) else [RANDOM_START]
    return ["", *wrap(text, COLUMNS), *_lines(asked), *note]


def recorded_claims(path: Path) -> list[Asked]:
    """Returns the claims of a finished experiment, with the detectable differences it measured."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if "detectable" not in table:
        return []  # of an earlier version
    return [
        Asked(
            row["claim"],
            "" if MEAN in row["claim"] or "," in row["label"] else row["label"].partition(" (")[0],
            row["paper"].removesuffix(" points"),
            row["detectable"],
            row["verdict"] == "cannot be decided here",
        )
        for row in table.to_dict("records")
    ]


def asked_tests(
    experiment: Experiment, setting: Setting, missing: Mapping[Cell, Row], num_items: int
) -> Iterator[Asked]:
    """Yields the claims about means, trends and other numbers, which are corrected together."""
    seeds, places = setting.budget.seeds, dict[tuple[Cell, str], int]()
    trained = {
        cell: Trained(cell, None, missing[cell])
        if cell in missing
        else Planned(cell, setting.source(cell.data), Row(cell.title, None), seeds, places)
        for cell in unique(experiment.cells(setting))
    }
    tests = experiment.tests(setting, trained)
    num_tests = sum(each.p is not None for each in tests)
    for each in tests:
        size = None
        if each.error is not None:
            squares = each.error.value**2  # of the coefficients, two for a difference of scores
            of_seeds = squares * SEED_DEVIATION**2 / seeds
            variance = squares / 2 * ITEM_DEVIATION**2 / num_items + of_seeds
            freedom = (seeds - 1) / (of_seeds / variance) ** 2
            size = detectable(Estimate(math.sqrt(variance), freedom), num_tests)
        yield _asked(each.claim, "", each.paper, 0.0, size)


def asked_claims(
    experiment: Experiment, setting: Setting, missing: Mapping[Cell, Row], num_items: int
) -> Iterator[Asked]:
    """Yields the claims about two systems and a label, which are corrected together."""
    claims = [c for c in experiment.claims() if not {c.better, c.than} & missing.keys()]
    systems = {cell for claim in claims for cell in (claim.better, claim.than)}
    if claims:
        pairs = {frozenset((claim.better, claim.than)) for claim in claims}
        seeds = setting.budget.seeds
        size = planned(num_items, seeds, len(systems), len(pairs), len(claims))
    for claim in claims:
        printed = None if claim.paper is None else claim.paper / 100
        yield _asked(str(claim), claim.label, printed, claim.margin, size)


def _asked(
    claim: str, label: str, printed: float | None, margin: float, size: float | None
) -> Asked:
    is_smaller = printed is not None and size is not None and abs(printed - margin) < size
    text = "" if printed is None else f"{100 * printed:+.2f}"
    return Asked(claim, label, text, in_points(size), is_smaller)


def _lines(asked: Sequence[Asked]) -> Iterator[str]:
    """Yields the claims by detectable difference, the labels of a claim together."""
    groups: dict[str, dict[str, list[str]]] = {}
    for each in asked:
        labels = groups.setdefault(each.size or NO_SIZE, {}).setdefault(each.claim, [])
        mark = "*" if each.is_smaller else ""
        labels.append(f"{each.label} {each.printed}{mark}".strip())
    for size, claims in groups.items():
        for i, (claim, labels) in enumerate(claims.items()):
            text = f"{claim}: {', '.join(labels)}" if any(labels) else claim
            first = f"  {size if i == 0 else '':14}"
            yield from wrap(text, COLUMNS, initial_indent=first, subsequent_indent=" " * 18)
    if NO_SIZE in groups:
        yield f"{NO_SIZE}: of numbers by seed, and claims without images."
    if few := sum(each.is_smaller for each in asked):
        printed = sum(each.printed != "" for each in asked)
        yield f"*: {few} of {printed} printed differences are smaller than the detectable ones."
