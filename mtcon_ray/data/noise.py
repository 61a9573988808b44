"""Labels corrupted on purpose, once for a run (METHODS 15)."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mtcon_ray.data.sources.base import MISSING, LabelTable, Split


def add_label_noise(
    table: LabelTable, share_by_task: dict[str, float], splits: Sequence[Split], seed: int
) -> LabelTable:
    """A table where a share of each task's labels is redrawn, uniformly over all its classes.

    The original may be drawn again, so that share * (K - 1) / K of the labels change. Missing
    labels stay missing. Each share, task and split has its own stream: no label of another task
    or split can change what is drawn, as long as the task keeps its classes.
    """
    labels = dict(table.labels)
    for task, share in share_by_task.items():
        codes = labels[task].copy()
        num_classes = len(table.classes[task])
        for split in splits:
            rows = table.rows(split)
            labelled = rows[codes[rows] != MISSING]
            rng = _stream("label noise", seed, share, task, split)
            redrawn = rng.permutation(labelled)[: round(share * len(labelled))]
            codes[redrawn] = rng.integers(num_classes, size=len(redrawn))
        labels[task] = codes
    return replace(table, labels=labels)


def _stream(*parts: object) -> np.random.Generator:
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))
