"""Names of all tracked metrics.

Scores are fractions, losses are nats per anchor, rates are per second of training. The step of a
metric in MLflow is the epoch, counted from 1.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Literal, NamedTuple

# Kind of a task's labels: a class of several, or a set of labels (multi-label).
Kind = Literal["classes", "set"]

LOSS = "loss"
LEARNING_RATE = "lr"
IMAGES_PER_SECOND = "images_per_second"
# Mean over the tasks of their scores on `val`. By default a sweep maximises it.
MEAN_ACCURACY, MEAN_SCORE = "val/accuracy", "val/score"
# The objective of a spec with `search.objective`: a score, or a mean of scores.
OBJECTIVE = "val/objective"
# The objective of a spec without tasks: the effective rank of the features of `val`, a share of
# their width.
RANK = "val/rankme"
TEST_RANK = "test/rankme"
# Highest objective so far, with `evaluate.select: best`. MLflow sorts runs by a metric's last
# value. For the objective itself, the last value belongs to the last epoch.
BEST = "val/best"
# Largest gradient norm of the test evaluation's probes, relative to the norm at zero weights.
PROBE_GRADIENT = "probe/gradient"
# Number of features on which the probes of the test evaluation are fitted.
PROBE_FEATURES = "probe/features"
# Score by kind of label: accuracy, or mean average precision of a label set.
SCORES = {"classes": "accuracy", "set": "map"}
# In place of a split: the test items in the space of the task's own head.
HEAD = "head"
# The accuracy of a vote of the nearest training items.
KNN = "knn"
# Display name of the score by kind of label.
TITLES = {"classes": "accuracy", "set": "mAP"}
# Metrics of `search.objective`: the score by kind of label, and metrics of classes.
SCORE = "score"
RETRIEVAL = ("recall_at_1", "recall_at_5", "recall_at_10", "r_precision", "map_at_r")
OF_CLASSES = (KNN, *RETRIEVAL, *(f"{HEAD}/{name}" for name in RETRIEVAL))
METRICS = (SCORE, *OF_CLASSES)
# Share of a step's triplets in which the negative is farther from the anchor than the positive.
TRIPLET_ACCURACY = "triplet_accuracy"

# Memory of the training process, by rank 0, and the peak of its GPU memory since the epoch before.
PROCESS_MEMORY = "system/process_memory_megabytes"
PROCESS_GPU_MEMORY = "system/process_gpu_memory_megabytes"


class Labels(NamedTuple):
    """The label columns of a spec. `kinds` includes tasks and held-out columns.

    `weights` are the weights of `search.objective` by term, None for the mean over all tasks.
    """

    tasks: tuple[str, ...]
    held_out: tuple[str, ...]
    kinds: Mapping[str, Kind]
    weights: Mapping[str, float] | None = None

    @property
    def shares(self) -> dict[tuple[str, str], float]:
        """The share of each score in the objective, by metric and task. Their sum is 1."""
        weights = self.weights or dict.fromkeys(self.tasks, 1.0)
        whole, shares = sum(weights.values()), defaultdict[tuple[str, str], float](float)
        for term, weight in weights.items():
            metric, tasks = self.scored(term)
            for task in tasks:
                shares[metric, task] += weight / whole / len(tasks)
        return dict(shares)

    def scored(self, term: str) -> tuple[str, tuple[str, ...]]:
        """Returns the metric and the tasks of a term: TASK, METRIC or METRIC/TASK.

        The name of a task takes precedence. An unknown term has the metric "". A metric has no
        tasks if it needs classes, and the named tasks have none.

        >>> labels = Labels(("shape", "tags"), (), {"shape": "classes", "tags": "set"})
        >>> labels.scored("tags"), labels.scored("knn"), labels.scored("knn/tags")
        (('score', ('tags',)), ('knn', ('shape',)), ('knn', ()))
        """
        if term in self.tasks:
            return SCORE, (term,)
        for metric in METRICS:
            named = [t for t in self.tasks if term in (metric, f"{metric}/{t}")]
            if named:
                fit = [t for t in named if metric == SCORE or self.kinds[t] == "classes"]
                return metric, tuple(fit)
        return "", ()

    @property
    def parts(self) -> dict[str, float]:
        """The share of each metric of an epoch in the objective, by the metric's name."""
        names = self.slugs
        return {
            retrieval("val", SCORES[self.kinds[t]] if m == SCORE else m, names[t]): share
            for (m, t), share in self.shares.items()
        }

    @property
    def slugs(self) -> dict[str, str]:
        """The name of each label in the names of its metrics."""
        return slugs((*self.tasks, *self.held_out))

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """The split and the name of each label in the names of its test scores."""
        splits = dict.fromkeys(self.held_out, "heldout") | dict.fromkeys(self.tasks, "test")
        return {label: (splits[label], name) for label, name in self.slugs.items()}

    @property
    def objective(self) -> str:
        """The name of the objective among an epoch's metrics."""
        return OBJECTIVE if self.weights else objective_name(self.kinds[t] for t in self.tasks)

    @property
    def objective_title(self) -> str:
        """A description of the objective for people: the averaged scores, or the spec's terms."""
        if not self.tasks:
            return "RankMe of the features, as a share of their width"
        if not self.weights:
            kinds = {self.kinds[task] for task in self.tasks}
            titles = [text for kind, text in TITLES.items() if kind in kinds]
            return titles[0] if len(titles) == 1 else f"mean of {', '.join(titles)}"
        whole = sum(self.weights.values())
        each = [f"{weight / whole:.0%} {term}" for term, weight in self.weights.items()]
        return next(iter(self.weights)) if len(each) == 1 else f"weighted mean: {', '.join(each)}"


def objective_name(kinds: Iterable[str]) -> str:
    """Returns the name of the mean over tasks: val/accuracy if all have classes, else val/score.

    The name is val/rankme without tasks.

    >>> objective_name(["classes", "classes"]), objective_name(["classes", "set"])
    ('val/accuracy', 'val/score')
    >>> objective_name([])
    'val/rankme'
    """
    kinds = set(kinds)
    if not kinds:
        return RANK
    return MEAN_ACCURACY if kinds == {"classes"} else MEAN_SCORE


def objective(values: Mapping[str, float]) -> float | None:
    """Returns the objective among an epoch's metrics, or None.

    `val/objective` is tracked in addition to the mean, only where it is the objective.
    """
    names = (OBJECTIVE, MEAN_SCORE, MEAN_ACCURACY, RANK)
    return next((values[name] for name in names if name in values), None)


def loss(task: str) -> str:
    """Returns the name of the unweighted loss of a task."""
    return f"loss/{task}"


def sigma(task: str) -> str:
    """Returns the name of sigma = exp(s/2), where s is a task's learned log variance."""
    return f"sigma/{task}"


def weight(task: str) -> str:
    """Returns the name of the factor applied to a task's loss in the epoch's last step."""
    return f"weight/{task}"


def retrieval(space: str, name: str, label: str) -> str:
    """Returns the name of a retrieval score, KNN or a mean of F1. space: a split, or HEAD."""
    return f"{space}/{name}/{label}"


def score(kind: str, split: str, label: str) -> str:
    """Returns the name of a label's score: accuracy, or map for a label set.

    split is `val`, `test`, `heldout`, or `train` for a probe's score on its own training items.
    """
    return f"{split}/{SCORES[kind]}/{label}"


def score_std(kind: str, split: str, label: str) -> str:
    """Returns the name of the score's bootstrap standard deviation."""
    return f"{split}/{SCORES[kind]}_std/{label}"


class Reading(NamedTuple):
    """A label's tracked score and its standard deviation, None for an untracked value."""

    value: float | None
    std: float | None


def reading(values: Mapping[str, float], split: str, label: str) -> Reading:
    """Returns the score and deviation of a label of any kind among metrics. label is a slug."""
    for kind in SCORES:
        value, std = (values.get(name(kind, split, label)) for name in (score, score_std))
        if value is not None or std is not None:
            return Reading(value, std)
    return Reading(None, None)


def cosine(pairs: Literal["positive", "random"], head: str | None = None) -> str:
    """Returns the name of the mean cosine of these pairs in an epoch's last step.

    Random pairs are different images. After a collapse their cosine is close to the cosine of
    positive pairs. `head` is only given if there are several heads.
    """
    return f"cosine/{pairs}" if head is None else f"cosine/{pairs}/{head}"


# MLflow refuses longer names, and the whole report with them.
MAX_NAME = 250
MAX_SLUG = MAX_NAME - len(score_std("classes", "heldout", ""))


def slug(column: str) -> str:
    """Returns a label column's name as it is used in metric names.

    It has letters and digits of any script, which MLflow accepts. A long name is cut.

    >>> slug("Heel height (cm)"), slug("Größe")
    ('heel-height-cm', 'größe')
    """
    # Composed, because MLflow refuses an accent as a character of its own.
    text = unicodedata.normalize("NFC", column.lower())
    return (re.sub(r"\W+", "-", text).strip("-") or "label")[:MAX_SLUG]


def slugs(columns: Iterable[str]) -> dict[str, str]:
    """Returns the slug of each column, with a number appended if an earlier column has the same.

    More columns at the end therefore do not change the other names.

    >>> slugs(["A+", "A-"])
    {'A+': 'a', 'A-': 'a-2'}
    """
    owners: dict[str, str] = {}
    for column in dict.fromkeys(columns):
        name = whole = slug(column)
        numbers = count(2)
        while name in owners:
            suffix = f"-{next(numbers)}"
            name = whole[: MAX_SLUG - len(suffix)] + suffix
        owners[name] = column
    return {column: name for name, column in owners.items()}
