"""Text forms of values, scores and times, the same in the terminal and the report."""

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtcon_ray.base import metrics
from mtcon_ray.base.paths import shown

# Only for annotations: `printable` is needed by `mtcon-ray --help`, which must not load torch.
if TYPE_CHECKING:
    import pandas as pd

    from mtcon_ray.evaluation.intervals import Interval
    from mtcon_ray.records.results import TrialResult

NOTHING = "—"
# Characters that control a terminal or reorder text, and surrogates, which cannot be encoded.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
# Characters of a line of an error, which may quote a value of any length.
MAX_LINE = 1000
# A network with learned triplets orders three of four right and more.
LEARNED_TRIPLETS = 0.75
COLLAPSED_COSINES = 0.005
# Marks intervals of a single seed.
ONE_SEED = "¹"
ONE_SEED_NOTE = f"{ONE_SEED} One seed, of either side: the interval covers the test items alone."


def printable(text: str) -> str:
    """Returns the text with control characters written out. Line ends and tabs stay.

    >>> printable("name\x1b[2J")
    'name\\\\x1b[2J'
    """
    return UNPRINTABLE.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def hanging(text: str) -> str:
    """Returns a printable message with all lines but the first indented.

    A line end in the name of a file then cannot imitate a line of this program.

    >>> hanging("a.png\\n[ 9:99] trial-0001 finished\\n  b.png")
    'a.png\\n  [ 9:99] trial-0001 finished\\n  b.png'
    """
    first, *rest = printable(text).split("\n")
    return "\n".join([first, *(line if line[:2] == "  " else f"  {line}" for line in rest)])


def one_line(text: str) -> str:
    """Returns the text with its line ends as slashes.

    >>> one_line("RuntimeError: NCCL\\n  unhandled error")
    'RuntimeError: NCCL / unhandled error'
    """
    return " / ".join(line.strip() for line in text.splitlines())


def abridged(text: str, limit: int = MAX_LINE) -> str:
    """Returns the text with "…" for the middle of each line longer than `limit`.

    >>> abridged("cell 'x" + 100_000 * "x" + "' in row 2", 21)
    "cell 'xxxx…' in row 2"
    """
    tail = (limit - 1) // 2
    return "\n".join(
        line if len(line) <= limit else f"{line[: limit // 2]}…{line[-tail:]}"
        for line in text.split("\n")
    )


def csv_text(table: "pd.DataFrame") -> str:
    """Returns a table as CSV in which no text is a formula for a spreadsheet.

    A name or a text of a received sweep may begin as a formula does. It gets an apostrophe.
    """

    def harmless(cell: Any) -> Any:
        is_formula = isinstance(cell, str) and re.match(r"[=+\-@\t\r]", cell)
        return f"'{cell}" if is_formula and not re.fullmatch(NUMBER, cell) else cell

    return table.rename(columns=harmless).map(harmless).to_csv(index=False)


def value_text(value: Any) -> str:
    """Returns a searched value: floats to 4 digits, everything else as in YAML.

    >>> [value_text(v) for v in (0.0316227766, 20, None, True, "cosine", [0.5, "ä"])]
    ['0.03162', '20', 'null', 'true', 'cosine', '[0.5, "ä"]']
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def accuracy_text(value: float | None, deviation: float | None = None) -> str:
    """Returns a fraction to 3 decimals, with its deviation if it is given.

    >>> accuracy_text(0.73261, 0.01049), accuracy_text(0.5), accuracy_text(None)
    ('0.733 ± 0.010', '0.500', '—')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    known = deviation is not None and math.isfinite(deviation)
    return f"{value:.3f} ± {deviation:.3f}" if known else f"{value:.3f}"


def interval_text(interval: "Interval | None", *, signed: bool = False) -> str:
    """Returns a mean with its 95 % interval, marked if the interval is of a single seed.

    >>> from mtcon_ray.evaluation.intervals import Interval
    >>> interval_text(Interval(0.7431, 0.7312, 0.7549, over_seeds=True))
    '0.743 [0.731, 0.755]'
    >>> interval_text(Interval(0.0123, -0.0031, 0.0269, over_seeds=False), signed=True)
    '+0.012 [-0.003, +0.027]¹'
    """
    if interval is None:
        return NOTHING
    value, low, high = (f"{number:{'+' * signed}.3f}" for number in interval[:3])
    return f"{value} [{low}, {high}]{'' if interval.over_seeds else ONE_SEED}"


def p_text(p: float | None) -> str:
    """Returns a p value to 3 decimals.

    >>> p_text(0.0312), p_text(0.0004), p_text(None)
    ('0.031', '< 0.001', '—')
    """
    return NOTHING if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001"


def duration_text(seconds: float) -> str:
    """Returns hours, minutes and seconds.

    >>> duration_text(75), duration_text(3725.4)
    ('1:15', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Returns each path of a spec with its last name, or with itself if others end with it too.

    >>> list(short_paths(["method.temperature", "train.lr", "model.lr"]).values())
    ['temperature', 'train.lr', 'model.lr']
    """
    ends = {path: path.rpartition(".")[2] for path in paths}
    known = [*ends.values()]
    return {path: end if known.count(end) == 1 else path for path, end in ends.items()}


def configuration_text(params: Mapping[str, Any]) -> str:
    """Returns searched fields and their values in a line.

    >>> configuration_text({"method.temperature": 0.1, "train.epochs": 8})
    'temperature=0.1 epochs=8'
    """
    short = short_paths(params)
    text = " ".join(f"{short[path]}={value_text(value)}" for path, value in params.items())
    return one_line(text) or "no searched fields"


def resume_line(name: str, root: Path | None) -> str:
    """Returns how a user resumes a stopped sweep. Without a root `mtcon-ray submit` began it.

    >>> resume_line("mine", None)
    'repeat `mtcon-ray submit` with --name mine'
    """
    if root is None:
        return f"repeat `mtcon-ray submit` with --name {name}"
    return f"`mtcon-ray resume {name} --root {shlex.quote(shown(root))}`"


def objective_note(labels: metrics.Labels) -> str:
    """Returns, in brackets, the meaning of the objective's name, "" if the name says it.

    >>> objective_note(metrics.Labels(("shape",), (), {"shape": "classes"}))
    ''
    >>> objective_note(metrics.Labels(("shape",), (), {"shape": "classes"}, {"score": 1}))
    ' (score)'
    """
    return "" if labels.objective == metrics.MEAN_ACCURACY else f" ({labels.objective_title})"


def network_text(trial: "TrialResult") -> str:
    """Returns the epoch of a trial's network, as in "network of epoch 12 of 20"."""
    return f"network of epoch {trial.model_epoch} of {trial.epochs}"


def label_title(labels: metrics.Labels, label: str) -> str:
    """Returns a label's name, with the name of its score unless it is accuracy."""
    title = metrics.TITLES[labels.kinds[label]]
    return label if title == "accuracy" else f"{label} ({title})"


def gauge_warnings(values: Mapping[str, float], margin: float | None = None) -> list[str]:
    """Returns a warning if a method's own gauges in an epoch show no learning.

    Gauges come from the epoch's last step, on training images: the share of triplets in the right
    order, by chance a half, and each head's mean cosines, which are equal after a collapse. The
    hinge loss of triplets is compared with its `margin`.
    """
    found = []
    cure = "train longer, or search train.lr"
    if margin is not None and (hinge := values.get(metrics.loss("triplet"), 0.0)) >= margin:
        text = f"the hinge loss is {hinge:.3f}, and {margin:g} for an embedding that is constant: "
        found.append(f"{text}it has learned nothing so far; {cure}")
    if (right := values.get(metrics.TRIPLET_ACCURACY, 1.0)) < LEARNED_TRIPLETS:
        text = f"the network orders {right:.0%} of its own triplets right, by chance 50%: "
        found.append(f"{text}it has learned little of them; {cure}")
    positive, random = metrics.cosine("positive"), metrics.cosine("random")
    heads = [name.removeprefix(positive) for name in values if name.startswith(positive)]
    gaps = {head: values[positive + head] - values.get(random + head, -1.0) for head in heads}
    if alike := [head.strip("/") for head, gap in gaps.items() if gap < COLLAPSED_COSINES]:
        where = f" in the space of {', '.join(alike)}" if any(alike) else ""
        text = f"positive pairs are as similar as random pairs{where}: it has collapsed or learned "
        found.append(f"{text}nothing so far; {cure} and the temperature")
    return found
