"""The search space as plain data: dimensions addressed by the dotted path of a spec field."""

import math
from itertools import product
from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from mtcon_ray.registry import Spec

Value = float | int | str | bool | None


class Dimension(Spec):
    """One searched field: exactly one of the five kinds."""

    model_config = ConfigDict(populate_by_name=True)

    loguniform: tuple[float, float] | None = Field(None, description="[low, high], log scale")
    uniform: tuple[float, float] | None = Field(None, description="[low, high]")
    int_: tuple[int, int] | None = Field(None, alias="int", description="[low, high], inclusive")
    choice: tuple[Value, ...] | None = Field(None, min_length=1, description="one of these")
    grid: tuple[Value, ...] | None = Field(None, min_length=1, description="each of these")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [k for k in type(self).model_fields if getattr(self, k) is not None]
        if len(kinds) != 1:
            named = ", ".join(k.rstrip("_") for k in kinds) or "none"
            raise ValueError(
                "a dimension must have exactly one of loguniform, uniform, int, choice, grid, "
                f"got {named}"
            )
        bounds = self.loguniform or self.uniform or self.int_
        if bounds and not bounds[0] < bounds[1]:
            raise ValueError(f"{self.kind} must satisfy low < high, got {list(bounds)}")
        if self.loguniform and self.loguniform[0] <= 0:
            raise ValueError(f"loguniform must have a positive low, got {list(self.loguniform)}")
        if self.values and len(set(map(repr, self.values))) < len(self.values):
            raise ValueError(f"{self.kind} must not repeat a value, got {list(self.values)}")
        return self

    @property
    def kind(self) -> str:
        """loguniform, uniform, int, choice or grid."""
        return next(k.rstrip("_") for k in type(self).model_fields if getattr(self, k) is not None)

    @property
    def values(self) -> tuple[Value, ...] | None:
        """All values of a finite, listed dimension, else None."""
        return self.choice or self.grid

    @property
    def size(self) -> int | None:
        """Number of values, None if unlimited."""
        if self.int_ is not None:
            return self.int_[1] - self.int_[0] + 1
        return None if self.values is None else len(self.values)

    @property
    def extremes(self) -> tuple[Value, ...]:
        """Values that the field must accept for the dimension to be legal."""
        return self.values or self.loguniform or self.uniform or self.int_ or ()

    def contains(self, value: Any) -> bool:
        """Whether a point of the user's lies inside."""
        if self.values is not None:
            return any(value == v and type(value) is type(v) for v in self.values)
        low, high = self.loguniform or self.uniform or self.int_ or (math.nan, math.nan)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low <= value <= high and (self.int_ is None or float(value).is_integer())


Space = dict[str, Dimension]
Point = dict[str, Any]


def grid_points(space: Space) -> list[Point]:
    """Every combination of listed values; the last dimension turns fastest."""
    values = []
    for dimension in space.values():
        assert dimension.values is not None, "checked by SearchSpec"
        values.append(dimension.values)
    return [dict(zip(space, combination, strict=True)) for combination in product(*values)]
