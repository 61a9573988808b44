"""Values that may be None by their type, and are not in a test."""

from typing import TypeVar

Value = TypeVar("Value")


def some(value: Value | None) -> Value:
    """Returns the value; fails if it is None."""
    assert value is not None
    return value
