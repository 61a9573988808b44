"""Scores of each class, and of each label of a set, from the winner's test predictions."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import torch

from mtcon_ray.display import presentation as show
from mtcon_ray.display.plotting import shortened
from mtcon_ray.display.results_table import WORDS, measured
from mtcon_ray.display.tables import Table
from mtcon_ray.evaluation.predictions import LabelPredictions, kind_of, load_predictions
from mtcon_ray.evaluation.scores import tie_aware_average_precision
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.problem import UNKNOWN_BIT

MAX_ROWS = 15
# A confusion matrix of more classes is too wide to read.
MAX_CLASSES = 20
# A row's score and its cells.
Row = tuple[float, list[str]]


class Cell(NamedTuple):
    """The share of a class's test items with an answer, and the same in words."""

    share: float
    text: str


class Part(NamedTuple):
    """The tables of a label. `rest` is a line about the rows left out, "" if all are shown.

    The confusion matrix has a row of cells by class with test items, and a column by answer. It is
    empty for a label set, and for more than MAX_CLASSES classes.
    """

    title: str
    table: Table
    rest: str
    answers: Sequence[str] = ()
    matrix: Sequence[tuple[str, list[Cell]]] = ()


def parts(results: SweepResults) -> Iterator[Part]:
    """Yields a part for each label of the winner with stored predictions, except for numbers."""
    winner, labels = results.winner, results.labels
    stored = load_predictions(results.predictions_of(winner)) if winner else None
    for label, place in measured(labels, winner.last_metrics).items() if winner else ():
        found = (stored or {}).get(place)
        if found is not None and kind_of(found.truth) != "number":
            make = _of_set if kind_of(found.truth) == "set" else _of_classes
            yield make(f"{show.label_title(labels, label)}, {WORDS[place[0]]}", found)


def _of_classes(title: str, found: LabelPredictions) -> Part:
    truth, predicted = found.truth.tolist(), found.predicted.tolist()
    named, by_class = Counter(predicted), defaultdict[int, Counter[int]](Counter)
    for code, answer in zip(truth, predicted, strict=True):
        by_class[code][answer] += 1
    names = {code: _name(found, code) for code in sorted({*named, *by_class})}
    rows, matrix = [], []
    for code, counts in sorted(by_class.items()):
        total, right = counts.total(), counts[code]
        wrong = Counter({other: n for other, n in counts.items() if other != code})
        ((other, times),) = wrong.most_common(1) or [(code, 0)]
        cells = [
            names[code],
            str(total),
            show.accuracy_text(right / total),
            show.accuracy_text(right / named[code] if named[code] else None),
            names[other] if times else show.NOTHING,
            f"{times} of {total}" if times else show.NOTHING,
        ]
        rows.append((right / total, cells))
        shares = [
            Cell(counts[answer] / total, f"{names[code]} as {text}: {counts[answer]} of {total}")
            for answer, text in names.items()
        ]
        matrix.append((names[code], shares))
    header = ["class", "test items", "recall", "precision", "most often taken for", "how often"]
    table, rest = _worst_first(header, rows, right=(1, 2, 3, 5))
    if len(names) > MAX_CLASSES:
        return Part(title, table, rest)
    return Part(title, table, rest, list(names.values()), matrix)


def _of_set(title: str, found: LabelPredictions) -> Part:
    scores_NL, bits_NL = torch.from_numpy(found.predicted), torch.from_numpy(found.truth)
    precision_L = tie_aware_average_precision(scores_NL, bits_NL).tolist()
    rows = []
    for place, (value, bits_N) in enumerate(zip(precision_L, bits_NL.unbind(1), strict=True)):
        known, has = int((bits_N != UNKNOWN_BIT).sum()), int((bits_N == 1).sum())
        baseline = show.accuracy_text(has / known if known else None)
        precision = show.accuracy_text(value)
        rows.append((value, [_name(found, place), str(known), str(has), baseline, precision]))
    header = ["label", "test items", "with the label", "baseline", "average precision"]
    return Part(title, *_worst_first(header, rows, right=range(1, 5)))


def _name(found: LabelPredictions, code: int) -> str:
    """Returns a class or label of a set by its code, which is its name in a file without names."""
    names = dict(enumerate(found.names))
    return shortened(show.printable(names.get(code, str(code))))


def _worst_first(header: list[str], rows: list[Row], right: Collection[int]) -> tuple[Table, str]:
    ranked = sorted(rows, key=lambda row: row[0])
    table = Table(header, [cells for _, cells in ranked[:MAX_ROWS]], right)
    if not (rest := len(rows) - MAX_ROWS) > 0:
        return table, ""
    score = "recall" if "recall" in header else "average precision"
    least = ranked[MAX_ROWS][0]
    return table, f"{rest} more are left out. Their {score} is {least:.3f} or more."
