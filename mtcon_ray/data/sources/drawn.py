"""Images that the project draws itself: nothing to download, every label known."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mtcon_ray.data.drawing import FACTORS, VERSION, Nuisances, draw
from mtcon_ray.data.sources.base import SOURCES, DataSource, DataSpec, LabelTable
from mtcon_ray.data.splits import drawn_split
from mtcon_ray.errors import nearest

SPLIT_FRACTIONS = (0.7, 0.1, 0.2)


@SOURCES.register("drawn")
class DrawnSource(DataSource):
    """Tilted, coloured, textured objects: five labels from independent factors."""

    class Spec(DataSpec):
        """Pictures drawn from a seed; labels are shape, colour, texture, tilt and mark."""

        kind: Literal["drawn"] = "drawn"
        tasks: tuple[str, ...] = Field(
            ("shape", "colour", "texture"), min_length=1, description="label columns to train on"
        )
        held_out: tuple[str, ...] = Field(
            ("tilt",), description="label columns never trained on, read once at the end"
        )
        num_items: int = Field(4000, ge=10, le=10**7, description="number of pictures")
        clutter: int = Field(1, ge=0, le=100, description="distracting blobs behind the object")
        occlusion: float = Field(
            0.05, ge=0, le=1, description="probability of a bar over the object"
        )
        noise: float = Field(
            0.04, ge=0, le=1, description="deviation of pixel noise, share of full brightness"
        )

        @model_validator(mode="after")
        def _labels_are_factors(self) -> Self:
            for column in (*self.tasks, *self.held_out):
                if column not in FACTORS:
                    raise ValueError(
                        f"labels of drawn data must be factors, got {column!r}"
                        f"{nearest(column, FACTORS)}"
                    )
            return self

    spec: Spec

    def read_labels(self) -> LabelTable:
        spec = self.spec
        columns = (*spec.tasks, *spec.held_out)
        num = spec.num_items
        return LabelTable(
            names=tuple(f"drawn {row}" for row in range(num)),
            labels={column: self._codes[column] for column in columns},
            classes={column: FACTORS[column] for column in columns},
            split=drawn_split(np.arange(num), SPLIT_FRACTIONS, spec.seed),
        )

    @cached_property
    def _codes(self) -> dict[str, np.ndarray]:
        """Class index of every item, int64 [N], by factor; each factor has its own stream."""
        seed, num = self.spec.seed, self.spec.num_items
        return {
            column: np.random.default_rng([seed, 1 + stream]).integers(len(classes), size=num)
            for stream, (column, classes) in enumerate(FACTORS.items())
        }

    def content_key(self) -> str:
        spec = self.spec
        scene = (spec.num_items, spec.seed, spec.clutter, spec.occlusion, spec.noise)
        return hashlib.sha256(f"drawn {VERSION} {scene}".encode()).hexdigest()

    def signature(self) -> str:
        return self.content_key()

    def decode(self, rows: Sequence[int], size: int) -> np.ndarray:
        spec = self.spec
        nuisances = Nuisances(spec.clutter, spec.occlusion, spec.noise)
        images = np.empty((len(rows), size, size, 3), dtype=np.uint8)
        for place, row in enumerate(rows):
            factors = {column: FACTORS[column][self._codes[column][row]] for column in FACTORS}
            images[place] = draw(factors, size, nuisances, [spec.seed, 0, row])
        return images
