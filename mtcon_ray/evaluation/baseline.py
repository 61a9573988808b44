"""Baselines of test scores: the score of each label without looking at the images."""

from collections.abc import Iterable

import numpy as np

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.spec.problem import UNKNOWN_BIT


def majority_shares(table: LabelTable, labels: Iterable[str]) -> dict[str, float]:
    """Returns each label's score on the test split without the images, a fraction, by label.

    For classes it is the share of the most frequent class among the classes in train or val. For
    a label set it is the mean share of positives, the mean average precision of a random ranking.
    Numbers are absent.
    """
    shares: dict[str, float] = {}
    test = table.rows("test")
    for label in labels:
        rows = test[table.known(label)[test]]
        if label in table.labels:
            counts = np.bincount(table.labels[label][rows])
            shares[label] = float(counts[: table.size_of(label)].max() / len(rows))
        elif label in table.multi_hot:
            bits_NL = table.multi_hot[label][rows]
            num_known_L = (bits_NL != UNKNOWN_BIT).sum(axis=0)
            # A label without known values scores 0, as in `mean_average_precision`.
            shares[label] = float(((bits_NL == 1).sum(axis=0) / num_known_L.clip(min=1)).mean())
    return shares
