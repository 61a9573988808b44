"""The search space as plain data: dimensions addressed by the dotted path of a spec field."""

import json
import math
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from mtcon_ray.registry import Spec

Scalar = float | int | str | bool | None
FORMS = (
    "{loguniform: [low, high]}, {uniform: [low, high]}, {int: [low, high]}, {choice: [values]}, "
    "{grid: [values]}"
)


def _one_message(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validates a listed value; raises one error instead of pydantic's one per union member."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError(
            f"a value must be a finite number, a text, true, false, null or a list of these, "
            f"got {value!r}"
        ) from None


Value = Annotated[Scalar | list[Scalar], WrapValidator(_one_message)]


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
        # The categories must be distinct too: Optuna gets a list as its JSON text, which may equal
        # a listed string.
        distinct = [set(map(_key, values)) for values in (self.values or (), self.categories)]
        if self.values and min(map(len, distinct)) < len(self.values):
            raise ValueError(f"{self.kind} must not repeat a value, got {list(self.values)}")
        return self

    @property
    def kind(self) -> str:
        """Returns "loguniform", "uniform", "int", "choice" or "grid"."""
        return next(k.rstrip("_") for k in type(self).model_fields if getattr(self, k) is not None)

    @property
    def values(self) -> tuple[Value, ...] | None:
        """Returns the listed values of a choice or grid, else None."""
        return self.choice or self.grid

    @property
    def categories(self) -> tuple[Scalar, ...]:
        """Returns the listed values in Optuna's form: a list becomes its JSON text."""
        return tuple(map(_category, self.values or ()))

    def category(self, value: Any) -> Any:
        """Returns the category of a listed value; any other value is returned unchanged."""
        return next((_category(v) for v in self.values or () if v == value), value)

    def value(self, category: Any) -> Any:
        """Returns the list that a JSON text stands for; any other value is returned unchanged."""
        lists = (v for v in self.values or () if isinstance(v, list))
        return next((v for v in lists if _category(v) == category), category)

    @property
    def size(self) -> int | None:
        """Returns the number of values, None if it is unlimited."""
        if self.int_ is not None:
            return self.int_[1] - self.int_[0] + 1
        return None if self.values is None else len(self.values)

    @property
    def extremes(self) -> tuple[Value, ...]:
        """Returns the values that the spec field must accept: all listed ones, or both bounds."""
        return self.values or self.loguniform or self.uniform or self.int_ or ()

    def contains(self, value: Any) -> bool:
        """Returns True if a value given by the user lies inside the dimension."""
        if self.values is not None:
            # In Python 1 == True == 1.0, so the types are compared too.
            return any(value == v and type(value) is type(v) for v in self.values)
        low, high = self.loguniform or self.uniform or self.int_ or (math.nan, math.nan)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low <= value <= high and (self.int_ is None or float(value).is_integer())


def _key(value: Any) -> Any:
    """Returns a hashable key that only equal values share: 1 and 1.0, but not 1 and true."""
    if isinstance(value, list):
        return tuple(map(_key, value))
    return (bool, value) if isinstance(value, bool) else value


def _category(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


Space = dict[str, Dimension]
Point = dict[str, Any]


def with_lists(space: Space, params: Mapping[str, Any]) -> Point:
    """Returns a trial's parameters with JSON texts of listed lists converted back to lists."""
    return {p: space[p].value(v) if p in space else v for p, v in params.items()}


def grid_points(space: Space) -> list[Point]:
    """Returns every combination of listed values; the last dimension varies fastest."""
    values = [dimension.values or () for dimension in space.values()]
    return [dict(zip(space, combination, strict=True)) for combination in product(*values)]
