"""Synthetic images: nothing to download, every label known."""

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.files import DataSource
from mtcon_ray.data.splits import drawn_split
from mtcon_ray.data.synthetic_images import ATTRIBUTES, FACTORS, LARGE, draw, key_of, object_size
from mtcon_ray.spec.data.base import SPLIT_FRACTIONS
from mtcon_ray.spec.data.own import SET, SyntheticSpec


class SyntheticSource(DataSource):
    """Synthetic images of tilted, coloured, textured objects, with five independent factors.

    The factors are labels with classes. `attributes` is a set of binary attributes of the object.
    """

    spec: SyntheticSpec
    num_threads = 1  # drawing holds Python's lock: two threads take 1.2 times as long

    def read_labels(self) -> LabelTable:
        spec = self.spec
        columns = (*spec.tasks, *spec.held_out)
        factors = [column for column in columns if column in FACTORS]
        has_set = SET in columns
        return LabelTable(
            names=tuple(f"synthetic {row}" for row in range(spec.num_items)),
            labels={column: self._codes[column] for column in factors},
            classes={column: FACTORS[column] for column in factors},
            split=drawn_split(np.arange(spec.num_items), SPLIT_FRACTIONS, spec.seed),
            multi_hot={SET: self._attributes()} if has_set else {},
            multi_hot_names={SET: (*ATTRIBUTES, "large")} if has_set else {},
        )

    def _attributes(self) -> np.ndarray:
        """Returns the binary attributes of all items, uint8 [N, L]."""
        facts = [
            np.isin(np.array(FACTORS[factor])[self._codes[factor]], classes)
            for factor, classes in ATTRIBUTES.values()
        ]
        # From the random generator of each image.
        seeds = ([self.spec.seed, 0, row] for row in range(self.spec.num_items))
        is_large = [object_size(seed) > LARGE for seed in seeds]
        return np.stack([*facts, is_large], axis=1).astype(np.uint8)

    @cached_property
    def _codes(self) -> dict[str, np.ndarray]:
        """Class index of every item, int64 [N], by factor, each from its own random stream."""
        seed, num = self.spec.seed, self.spec.num_items
        return {
            column: np.random.default_rng([seed, 1 + stream]).integers(len(classes), size=num)
            for stream, (column, classes) in enumerate(FACTORS.items())
        }

    def content_key(self) -> str:
        return hashlib.sha256(key_of(self.spec.num_items, self.spec.seed).encode()).hexdigest()

    def signature(self) -> str:
        return self.content_key()

    def decode(self, rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        images = np.empty((len(rows), size, size, 3), dtype=np.uint8)
        for place, row in enumerate(rows):
            factors = {column: FACTORS[column][self._codes[column][row]] for column in FACTORS}
            # Seeds beginning with (seed, 0) are for images, all other seeds for factors.
            images[place] = draw(factors, size, [self.spec.seed, 0, row])
        return images, {}
