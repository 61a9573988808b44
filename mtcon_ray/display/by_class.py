"""Scores of each class, and of each label of a set, from the winner's test predictions."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import torch

from mtcon_ray.display import presentation as show
from mtcon_ray.display.plotting import shortened
from mtcon_ray.display.results_table import WORDS, measured
from mtcon_ray.display.tables import Table
from mtcon_ray.evaluation.predictions import LabelPredictions, kind_of, load_predictions
from mtcon_ray.evaluation.scores import average_precisions
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.problem import UNKNOWN_BIT

MAX_ROWS = 15
# A confusion matrix of more classes is too wide to read.
MAX_CLASSES = 20


class Part(NamedTuple):
    """The tables of a label, with the MAX_ROWS worst rows.

    The confusion matrix has a row of counts by class with test items, and a column by answer. It is
    empty for a label set, and for more than MAX_CLASSES classes.
    """

    title: str
    table: Table
    answers: Sequence[str] = ()
    matrix: Sequence[tuple[str, list[int]]] = ()


def parts(results: SweepResults) -> Iterator[Part]:
    """Yields a part for each label of the winner with stored predictions."""
    winner, labels = results.winner, results.labels
    stored = load_predictions(results.predictions_of(winner)) if winner else None
    for label, place in measured(labels, winner.last_metrics).items() if winner else ():
        if (found := (stored or {}).get(place)) is not None:
            make = _of_set if kind_of(found.truth) == "set" else _of_classes
            yield make(f"{show.label_title(labels, label)}, {WORDS[place[0]]}", found)


def _of_classes(title: str, found: LabelPredictions) -> Part:
    truth, predicted = found.truth.tolist(), found.predicted.tolist()
    named, by_class = Counter(predicted), defaultdict[int, Counter[int]](Counter)
    for code, answer in zip(truth, predicted, strict=True):
        by_class[code][answer] += 1
    names = {code: _name(found, code) for code in sorted({*named, *by_class})}
    rows = []
    for code, counts in sorted(by_class.items()):
        total, right = counts.total(), counts[code]
        wrong = counts - Counter({code: right})
        mistaken = [f"{names[other]} ({times} of {total})" for other, times in wrong.most_common(1)]
        recall = show.accuracy_text(right / total)
        precision = show.accuracy_text(right / named[code] if named[code] else None)
        rows.append([names[code], str(total), recall, precision, *(mistaken or [show.NOTHING])])
    header = ["class", "test items", "recall", "precision", "most often taken for"]
    table = Table(header, sorted(rows, key=itemgetter(2))[:MAX_ROWS], right=(1, 2, 3))
    shown = sorted(by_class) if len(names) <= MAX_CLASSES else []
    matrix = [(names[code], [by_class[code][answer] for answer in names]) for code in shown]
    return Part(title, table, list(names.values()), matrix)


def _of_set(title: str, found: LabelPredictions) -> Part:
    scores_NL, bits_NL = torch.from_numpy(found.predicted), torch.from_numpy(found.truth)
    precision_L = average_precisions(scores_NL, bits_NL).tolist()
    rows = []
    for place, (ap, bits_N) in enumerate(zip(precision_L, bits_NL.unbind(1), strict=True)):
        known, has = int((bits_N != UNKNOWN_BIT).sum()), int((bits_N == 1).sum())
        baseline = show.accuracy_text(has / known if known else None)
        rows.append([_name(found, place), str(known), str(has), baseline, show.accuracy_text(ap)])
    header = ["label", "test items", "with the label", "baseline", "average precision"]
    return Part(title, Table(header, sorted(rows, key=itemgetter(4))[:MAX_ROWS], right=range(1, 5)))


def _name(found: LabelPredictions, code: int) -> str:
    """Returns a class or label of a set by its code, which is its name in a file without names."""
    name = found.names[code] if 0 <= code < len(found.names) else str(code)
    return shortened(show.printable(name))
