"""The score that each label has without the images, beside which a probe's score is read."""

from collections.abc import Iterable

import numpy as np

from mtcon_ray.data.batch import UNKNOWN_BIT
from mtcon_ray.data.sources.base import LabelTable


def majority_shares(table: LabelTable, labels: Iterable[str]) -> dict[str, float]:
    """Returns the score on the test split that each label has without the images.

    Of classes it is the accuracy of always naming the most frequent one that train or val has, of
    a set the mean average precision of a random ranking. Labels that are numbers or not known there
    have none.
    """
    shares: dict[str, float] = {}
    test = table.rows("test")
    for label in labels:
        rows = test[table.known(label)[test]]
        kind = table.kind_of(label)
        if not len(rows) or kind == "number":
            continue
        if kind == "classes":
            counts = np.bincount(table.labels[label][rows], minlength=table.size_of(label))
            shares[label] = float(counts[: table.size_of(label)].max() / len(rows))
        else:
            bits_NL = table.multi_hot[label][rows]
            num_known_L = (bits_NL != UNKNOWN_BIT).sum(axis=0)
            # A label that is known nowhere scores 0, as in the mean average precision.
            shares[label] = float(((bits_NL == 1).sum(axis=0) / num_known_L.clip(min=1)).mean())
    return shares
