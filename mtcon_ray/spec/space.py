"""The search space as plain data: dimensions addressed by the dotted path of a spec field."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, WrapValidator, model_validator

from mtcon_ray.base.registry import Spec

MAX_INTEGER = 2**53  # each integer up to here is a 64-bit float
Bound = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Scalar = float | int | str | bool | None
FORMS = (
    "{loguniform: [low, high]}, {uniform: [low, high]}, {int: [low, high]}, "
    "{logint: [low, high]}, {choice: [values]}, {grid: [values]}"
)


def _one_message(value: Any, validate: Callable[[Any], Any]) -> Any:
    """Validates a listed value. Raises one error instead of pydantic's error per union member."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError(
            f"a value must be a finite number, a text, true, false, null or a list of these, "
            f"got {value!r}"
        ) from None


Value = Annotated[Scalar | list[Scalar], WrapValidator(_one_message)]


class Dimension(Spec):
    """A searched field: exactly one of the six kinds. `step` belongs to uniform and int."""

    model_config = ConfigDict(populate_by_name=True)

    loguniform: tuple[float, float] | None = Field(None, description="[low, high], log scale")
    uniform: tuple[float, float] | None = Field(None, description="[low, high]")
    int_: tuple[Bound, Bound] | None = Field(None, alias="int", description="[low, high] inclusive")
    logint: tuple[Bound, Bound] | None = Field(None, description="the same, log scale")
    choice: tuple[Value, ...] | None = Field(None, min_length=1, description="listed values")
    grid: tuple[Value, ...] | None = Field(None, min_length=1, description="each of these")
    step: float | None = Field(None, gt=0, description="of uniform and int: low, low + step, ...")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = self._kinds
        if len(kinds) != 1:
            named = ", ".join(kinds) or "none"
            raise ValueError(
                "a dimension must have exactly one of loguniform, uniform, int, logint, choice, "
                f"grid, got {named}"
            )
        low, high = self.bounds or (0, 1)
        if not low < high:
            raise ValueError(f"{self.kind} must satisfy low < high, got {[low, high]}")
        if math.isinf(high - low):
            raise ValueError(f"{self.kind} must span a finite range, got {[low, high]}")
        if self.is_log and low <= 0:
            raise ValueError(f"{self.kind} must have a positive low, got {[low, high]}")
        if self.step is not None:
            if self.uniform is None and self.int_ is None:
                raise ValueError(f"step must come with uniform or int, got it with {self.kind}")
            count, is_broken = (high - low) / self.step, self.int_ and not self.step.is_integer()
            if count > MAX_INTEGER or not _is_whole(count) or is_broken:
                raise ValueError(
                    "step must lead from low to high in whole steps, for int through integers, got "
                    f"{self.step:g} for [{low:g}, {high:g}]"
                )
        # The categories must be distinct too: Optuna gets a list as its JSON text, which may equal
        # a listed string.
        distinct = [set(map(_key, values)) for values in (self.values or (), self.categories)]
        if self.values and min(map(len, distinct)) < len(self.values):
            raise ValueError(f"{self.kind} must not repeat a value, got {list(self.values)}")
        return self

    @property
    def _kinds(self) -> list[str]:
        fields = (f for f in type(self).model_fields if f != "step")
        return [f.rstrip("_") for f in fields if getattr(self, f) is not None]

    @property
    def kind(self) -> str:
        """Returns "loguniform", "uniform", "int", "logint", "choice" or "grid"."""
        return self._kinds[0]

    @property
    def bounds(self) -> tuple[float, float] | tuple[int, int] | None:
        """Returns the least and the greatest value, None if the values are listed."""
        return self.loguniform or self.uniform or self.int_ or self.logint

    @property
    def is_integer(self) -> bool:
        """Returns True if all values of the range are integers."""
        return self.int_ is not None or self.logint is not None

    @property
    def is_log(self) -> bool:
        """Returns True if the range has a log scale."""
        return self.loguniform is not None or self.logint is not None

    @property
    def values(self) -> tuple[Value, ...] | None:
        """Returns the listed values of a choice or grid, else None."""
        return self.choice or self.grid

    @property
    def categories(self) -> tuple[Scalar, ...]:
        """Returns the listed values in Optuna's form: a list becomes its JSON text."""
        return tuple(map(_category, self.values or ()))

    def category(self, value: Any) -> Any:
        """Returns the category of a listed value. Any other value is returned unchanged."""
        return next((_category(v) for v in self.values or () if v == value), value)

    def value(self, category: Any) -> Any:
        """Returns the list behind a JSON text. Any other value is returned unchanged."""
        lists = (v for v in self.values or () if isinstance(v, list))
        return next((v for v in lists if _category(v) == category), category)

    @property
    def size(self) -> int | None:
        """Returns the number of values, None if it is unlimited."""
        if self.values is not None:
            return len(self.values)
        step = 1 if self.is_integer and self.step is None else self.step
        low, high = self.bounds or (0, 0)
        return None if step is None else round((high - low) / step) + 1

    def at(self, share: float) -> Scalar:
        """Returns the value at a share, from 0 to below 1: a category, or by scale and steps."""
        if self.bounds is None:
            return self.categories[int(share * len(self.categories))]
        low, high = self.bounds
        step = self.step or int(self.is_integer)
        # Each value of a range with steps has an equal share.
        start, end = low - step / 2, high + step / 2
        if self.is_log:
            found = math.exp(math.log(start) + share * (math.log(end) - math.log(start)))
        else:
            found = start + share * (end - start)
        if step:
            found = low + step * round((found - low) / step)
        found = min(max(found, low), high)
        return int(found) if self.is_integer else found

    @property
    def extremes(self) -> tuple[Value, ...]:
        """Returns all listed values, or both bounds."""
        return self.values or self.bounds or ()

    @property
    def tried(self) -> tuple[Value, ...]:
        """Returns the values that the spec field must accept: the extremes, of a range of integers
        also the second, because a field may take multiples of a number alone.
        """
        if not (self.bounds and self.is_integer):
            return self.extremes
        low, high = self.bounds
        return (*self.extremes, int(min(low + (self.step or 1), high)))

    def contains(self, value: Any) -> bool:
        """Returns True if a value given by the user lies inside the dimension."""
        if self.values is not None:
            # In Python 1 == True == 1.0, so the types are compared too.
            return any(value == v and type(value) is type(v) for v in self.values)
        low, high = self.bounds or (math.nan, math.nan)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not low <= value <= high or (self.is_integer and value != int(value)):
            return False
        return self.step is None or _is_whole((value - low) / self.step)


def _is_whole(number: float) -> bool:
    """Returns True for a whole number up to the rounding of a quotient such as 0.3 / 0.1."""
    return math.isclose(number, round(number), rel_tol=1e-9, abs_tol=1e-9)


def _key(value: Any) -> Any:
    """Returns a hashable key, shared only by equal values: 1 and 1.0, but not 1 and true."""
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


def grid_points(space: Space) -> Iterator[Point]:
    """Yields every combination of listed values. The last dimension varies fastest."""
    values = [dimension.values or () for dimension in space.values()]
    return (dict(zip(space, combination, strict=True)) for combination in product(*values))
