"""Experiments in the form of tables: a paper's values and ours, and the order of its methods."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from experiments.reproduction.above import Above
from experiments.reproduction.cells import BASELINES, Cell, Setting, unique
from experiments.reproduction.data import DATA_SETS
from experiments.reproduction.drawing import LACKING, PLACE, draw_table, row_names
from experiments.reproduction.experiment import (
    Claim,
    Experiment,
    Outcome,
    Tested,
    Trained,
    described,
)
from experiments.reproduction.judging import below_untrained, hidden_colours, judge, percent
from experiments.reproduction.paper import PaperValue, values_of
from experiments.reproduction.trends import decided, difference_of, differences_tested, mean_of
from mtcon_ray.base import metrics
from mtcon_ray.display.presentation import ONE_SEED_NOTE

# The papers' metrics in their tables: heading, and our metric's mean for an F1.
F1_MEANS = {
    "F1_micro_percent_val": "micro",
    "F1_macro_percent_val": "macro",
    "F1_sample_percent_val": "sample",
}
SCORES = {"top1_accuracy_percent": "accuracy", "mAP_percent_val": "mAP"}
TRAIN_SCORE = "mAP_percent_train"
HEADINGS = {
    **SCORES,
    **{name: f"{mean} F1" for name, mean in F1_MEANS.items()},
    TRAIN_SCORE: "mAP of the training split",
}

MULTI_TASK: Mapping[str, tuple[str, ...]] = {
    # Tables 4 and 5 of MTCon abbreviate the name in table 6.
    "XEnt MT": ("xent-kendall",),
    "XEnt Multi-Task": ("xent-kendall",),
    "SimCLR": ("simclr",),
    "CSN": ("csn",),
    "SCE-Net": ("scenet",),
    "MTCon": ("mtcon", "mtcon-printed", "mtcon-equal"),
}
# Tables 2 and 3 of MTCon: XEnt and SupCon have a separate network for each label.
IN_DOMAIN: Mapping[str, tuple[str, ...]] = {
    **MULTI_TASK,
    "XEnt": ("xent:{label}",),
    "SupCon": ("supcon:{label}",),
}

NOTES = (
    "Ours: linear probes on the frozen encoder, converged logistic regression whose penalty is "
    "chosen on the validation split, scored on the test split; the mean over seeds in percent. "
    "Deviations: the paper's as printed, ours of resamples of single test items (mean over "
    "seeds), and of the seeds. Intervals and p draw groups of similar items.",
    "In square brackets: 95 % interval over seeds and test items. " + ONE_SEED_NOTE,
    "Features: numbers of an image that the probes see, all that the system has.",
)
SPLITS_NOTE = (
    "The paper's scores of label sets are of the validation split and ours of the test split."
)
LABEL_SETS_NOTE = (
    f"{SPLITS_NOTE} Ours have thresholds of F1 chosen on the validation split. Those of the "
    "training split are of the items that the probes are trained on, for both. F1 and scores of "
    "the training split have a deviation over seeds alone. At the budget paper the probes of label "
    "sets are trained by SGD for the paper's 51 epochs."
)


@dataclass(frozen=True)
class Line:
    """A value of the table: the paper's value, None without a counterpart, and our cell."""

    method: str
    cell: Cell
    data: str
    label: str
    metric: str
    is_held_out: bool
    printed: PaperValue | None


@dataclass(frozen=True)
class PaperTable:
    """A printed table: the system of each method, and the claims about their order.

    `systems` has keys of SYSTEMS by the paper's method, with "{label}" for a method with a separate
    network per label. If a method has several systems, the claims use the first. `corrections`
    replace misprints in the claims, by method and label. `own_data` is used in the table's cells.
    `note` is about its printed values. `also` returns the tests of other claims, which are
    corrected together with the means' tests.
    """

    paper: str
    number: int
    systems: Mapping[str, tuple[str, ...]]
    above: Sequence[Above]
    corrections: Mapping[tuple[str, str], float] = field(default_factory=dict)
    own_data: tuple[tuple[str, Any], ...] = ()
    note: str = ""
    also: Callable[[Mapping[Cell, Trained]], list[Tested]] = lambda trained: []

    @property
    def values(self) -> tuple[PaperValue, ...]:
        """The printed values."""
        return values_of(self.paper, self.number)

    def lines(self) -> list[Line]:
        """Returns a line for each printed value and system, then the baselines' lines."""
        lines = [
            Line(v.method, self._cell(v, system), v.data, v.label, v.metric, v.is_held_out, v)
            for v in self.values
            for system in self.systems[v.method]
        ]
        for v in dict.fromkeys((v.data, v.label, v.metric, v.is_held_out) for v in self.values):
            lines += [
                Line(LACKING, Cell(v[0], system, own_data=self.own_data), *v, None)
                for system in BASELINES
            ]
        return lines

    def cells(self, setting: Setting | None = None) -> list[Cell]:
        """Returns the trainings behind the table, which do not depend on the setting."""
        return unique(line.cell for line in self.lines())

    def claims(self) -> list[Claim]:
        """Returns the claims supported by the paper's own numbers."""
        return [claim for claim in self.comparisons() if claim.paper and claim.paper > 0]

    def comparisons(self) -> list[Claim]:
        """Returns all of `above` with the paper's differences, in each label's main metric."""
        found = []
        for above in self.above:
            for label in above.labels:
                better, than = self._printed(above.better, label), self._printed(above.than, label)
                sides = (
                    self._cell(better, self.systems[better.method][0]),
                    self._cell(than, self.systems[than.method][0]),
                )
                over = f"{above.margin:g} points " if above.margin else ""
                text = f"{better.method} {over}above {than.method}"
                paper, margin = better.value - than.value, above.margin / 100
                pool = f"{better.method} above {above.pool or than.method}"
                found.append(Claim(*sides, label, paper, margin, text, pool))
        return found

    def means(self, trained: Mapping[Cell, Trained]) -> list[Tested]:
        """Returns the test of each comparator: the mean difference of the claims of its pool.

        Held-out labels have means of their own. A colour that one side's views change is left out.
        """
        pools: dict[tuple[bool, str], list[Claim]] = {}
        for claim in self.comparisons():
            key = claim.label in claim.better.held_out_labels, claim.pool
            if not hidden_colours(trained, claim):
                pools.setdefault(key, []).append(claim)
        found: list[Tested] = []
        for held_out in (False, True):
            groups = [own for (is_out, _), own in pools.items() if is_out == held_out and own[1:]]
            differences = {
                f"{own[0].pool}, mean of {len(own)} differences": mean_of(
                    [difference_of(trained[c.better], trained[c.than], c.label) for c in own]
                )
                for own in groups
            }
            tests = zip(differences_tested(differences), groups, strict=True)
            found += [_shown(tested, trained, own) for tested, own in tests]
        return found

    def tests(self, setting: Setting, trained: Mapping[Cell, Trained]) -> list[Tested]:
        """Returns the tests of the means and of the other claims."""
        return [*self.means(trained), *self.also(trained)]

    def _cell(self, value: PaperValue, system: str) -> Cell:
        """Returns the training behind a printed value, without the label if it is held out."""
        is_own = value.is_held_out and value.label in DATA_SETS[value.data].tasks
        held_out = value.label if is_own else None
        name = system.format(label=value.label)
        return Cell(value.data, name, held_out, own_data=self.own_data)

    def _printed(self, method: str, label: str) -> PaperValue:
        """Returns a printed accuracy or mAP, corrected. Raises ValueError if it is not printed."""
        for value in self.values:
            if (value.method, value.label) == (method, label) and value.metric in SCORES:
                right = self.corrections.get((method, label), value.value)
                return replace(value, value=right)
        raise ValueError(f"{self.paper}, table {self.number} has no {method!r} on {label!r}")

    def finish(self, setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
        """Returns table, picture and verdicts."""
        lines = self.lines()
        table = pd.DataFrame([_row(line, trained[line.cell]) for line in lines])
        has_sets = any(line.metric in F1_MEANS for line in lines)
        return Outcome(
            table,
            {f"{self.paper}, table {self.number}: the paper's values and ours": draw_table(table)},
            [
                *decided(setting, self.tests(setting, trained)),
                *judge(setting, trained, self.claims()),
            ],
            [*NOTES, *([LABEL_SETS_NOTE] if has_sets else []), *filter(None, [self.note])],
            readable=readable(table),
        )


def table_experiment(file: str, doc: str | None, table: PaperTable) -> Experiment:
    """Returns the table experiment of a module, from its `__file__` and `__doc__`."""
    named = described(file, doc)
    return Experiment(*named, table.cells, table.finish, table.claims, table.tests)


def _shown(tested: Tested, trained: Mapping[Cell, Trained], claims: Sequence[Claim]) -> Tested:
    """Returns the test of a mean difference with what readers see, from the claims of the mean."""
    labels = list(dict.fromkeys(trained[c.better].name_label(c.label) for c in claims))
    notes = dict.fromkeys(below_untrained(trained, claim) for claim in claims)
    paper = fmean(claim.paper or 0.0 for claim in claims) / 100
    note = "; ".join(filter(None, notes))
    is_held_out = claims[0].label in claims[0].better.held_out_labels
    return replace(tested, paper=paper, label=", ".join(labels), note=note, is_held_out=is_held_out)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table for readers: values with their deviations, all methods of a label together.

    Leaves out columns with the same value in all rows.
    """
    parts = []
    for _, group in table.groupby(PLACE, sort=False):
        held_out = group["held out"].map({"yes": ", held out", "no": ""})
        parts.append(
            pd.DataFrame(
                {
                    "data": group["data"],
                    "label": group["label"] + held_out,
                    "metric": group["metric"],
                    "method": row_names(group),
                    "features": group["features"],
                    "paper (%)": _with(group["paper"], group["± paper"]),
                    "ours (%)": _with(group["ours"], group["± items"]),
                    "95 % interval": group["interval"],
                    "± seeds": group["± seeds"],
                    "difference": group["difference"],
                    "no result because": group["reason"],
                }
            )
        )
    whole = pd.concat(parts)
    kept = [c for c in whole.columns if c in ("label", "method") or whole[c].nunique() > 1]
    return whole[kept]


def _with(values: pd.Series, deviations: pd.Series) -> list[str]:
    """Returns values as text with their deviations, "" without a value."""
    pairs = zip(values, deviations, strict=True)
    return [
        "" if pd.isna(v) else f"{v:.2f}" if pd.isna(d) else f"{v:.2f} ± {d:.2f}" for v, d in pairs
    ]


def _row(line: Line, trained: Trained) -> dict[str, object]:
    """Returns a line of the table, values in percent."""
    seeds = [100 * score for score in seeds_in(trained, line.label, line.metric)]
    ours = fmean(seeds) if seeds else None
    printed, deviation = line.printed, trained.reading(line.label).std
    interval = trained.interval(line.label) if line.metric in SCORES else None
    value = None if printed is None else printed.value
    has_deviation = ours is not None and deviation is not None and line.metric in SCORES
    source = trained.source
    images = "no images" if source is None else source.title
    return {
        "data": DATA_SETS[line.data].title,
        "images": images,
        "label": line.label if source is None else source.name_label(line.label),
        "held out": "yes" if line.is_held_out else "no",
        "metric": HEADINGS[line.metric],
        "method": line.method,
        "ours is": line.cell.title,
        "features": ", ".join(map(str, trained.row.features)),
        "paper": value,
        "± paper": None if printed is None else printed.deviation,
        "ours": ours,
        "± items": 100 * deviation if has_deviation and deviation is not None else None,
        "interval": percent(interval),
        "± seeds": stdev(seeds) if len(seeds) > 1 else None,
        "seeds": len(seeds),
        "difference": None if value is None or ours is None else ours - value,
        "reason": "" if trained.finished else trained.row.why,
    }


def seeds_in(trained: Trained, label: str, metric: str) -> list[float]:
    """Returns a label's score of each seed, a fraction, in a metric of the papers."""
    if metric in SCORES:
        return trained.seeds(label)
    if trained.source is None:
        return []
    split, column = trained.place(label)
    slug = metrics.slug(column)
    if metric == TRAIN_SCORE:
        return trained.metric(metrics.score("set", "train", slug))
    return trained.metric(metrics.retrieval(split, f"f1_{F1_MEANS[metric]}", slug))
