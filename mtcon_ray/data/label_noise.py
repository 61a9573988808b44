"""Label noise: a share of the labels replaced by random classes, once per run.

Source: the experiment with corrupted tasks of MSCon (Mu, Guttag and Makar 2023, arXiv:2307.02712,
figure 3).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mtcon_ray.data.batch import MISSING
from mtcon_ray.data.sources.base import LabelTable
from mtcon_ray.data.splits import Split


def add_label_noise(
    table: LabelTable, share_by_task: dict[str, float], splits: Sequence[Split], seed: int
) -> LabelTable:
    """Returns a table where a share of each task's labels is redrawn uniformly over its K classes.

    The original class may be drawn again, so share * (K - 1) / K of the labels change in
    expectation. Missing labels stay missing. Each combination of seed, share, task and split has
    its own random stream. The noise of a task therefore does not depend on other tasks or splits,
    as long as its classes are the same.
    """
    labels = dict(table.labels)
    for task, share in share_by_task.items():
        codes = labels[task].copy()
        num_classes = len(table.classes[task])
        for split in splits:
            rows = table.rows(split)
            labelled = rows[codes[rows] != MISSING]
            # A digest as the seed, because Python salts hash() of strings in each process.
            stream = hashlib.sha256(repr(("label noise", seed, share, task, split)).encode())
            rng = np.random.default_rng(int.from_bytes(stream.digest()[:16], "big"))
            redrawn = rng.permutation(labelled)[: round(share * len(labelled))]
            codes[redrawn] = rng.integers(num_classes, size=len(redrawn))
        labels[task] = codes
    return replace(table, labels=labels)
