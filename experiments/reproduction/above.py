"""What a table claims: a method of the paper is above others, each on some labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Above:
    """Claims of a table: on each of these labels, a method of the paper is above another method.

    If the paper prints the opposite for a label, the label counts only in the mean. `margin` is in
    percentage points. `pool` names the comparator of several such claims, `than` by default. The
    mean over their labels is also a claim.
    """

    better: str
    than: str
    labels: Sequence[str]
    margin: float = 0.0
    pool: str = ""


def single_task(words: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Returns the systems of XEnt and SupCon on a label, from label to the paper's word."""
    return {
        f"{title} {word}": (f"{key}:{label}",)
        for title, key in (("XEnt", "xent"), ("SupCon", "supcon"))
        for label, word in words.items()
    }


def off_diagonal(better: str, than: str, words: Mapping[str, str]) -> list[Above]:
    """Returns claims: a method is above each single-label network on all other labels.

    `words` are as in `single_task`.
    """
    return [
        Above(
            better,
            f"{than} {word}",
            [label for label in words if label != own],
            pool=f"{than} networks of other tasks",
        )
        for own, word in words.items()
    ]


def diagonal(better: str, than: str, words: Mapping[str, str]) -> list[Above]:
    """Returns claims: a method is above the network of each label on this label.

    `words` are as in `single_task`.
    """
    pool = f"{than} networks of the same task"
    return [Above(better, f"{than} {word}", (own,), pool=pool) for own, word in words.items()]
