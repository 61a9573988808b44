"""Tests of the YAML of specs: numbers of YAML 1.2, strings that look like them, repeated keys."""

import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from mtcon_ray.base.safe_yaml import dump_yaml, parse_yaml
from mtcon_ray.errors import SpecError

PLAIN_VALUES = [
    ("010", 10), ("064", 64), ("-08", -8), ("+12", 12), ("0o17", 15), ("0x1F", 31), ("0", 0),
    ("1:30", "1:30"), ("1:30.5", "1:30.5"), ("0b11", "0b11"), ("1_000", "1_000"),
    ("0o8", "0o8"), ("-0x1", "-0x1"), ("2026-01-31", "2026-01-31"), ("=", "="), ("<<", "<<"),
    ("1e-3", 0.001), (".5", 0.5), ("+2E-1", 0.2), ("1e400", math.inf),
    ("-.Inf", -math.inf), ("~", None), ("no", False), ("on", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), PLAIN_VALUES)
def test_plain_values_are_of_yaml_1_2_and_booleans_of_1_1(text: str, value: Any) -> None:
    (read,) = parse_yaml(f"[{text}]", "file")
    assert (read, type(read)) == (value, type(value))


TEXTS = st.text(st.characters(codec="utf-8"))
LOOKS = st.text("0123456789:_.-+eExobnaftruysi", max_size=6)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS, LOOKS)


@settings(deadline=None)
@given(st.dictionaries(TEXTS | LOOKS, PLAIN))
def test_what_is_written_is_read_back_by_readers_of_both_versions(value: dict[str, Any]) -> None:
    text = dump_yaml(value)
    assert repr(parse_yaml(text, "file")) == repr(yaml.safe_load(text)) == repr(value)


def test_a_key_given_twice_is_refused() -> None:
    told = "file must give a key once in a mapping, got 'train' in lines 2 and 4"
    with pytest.raises(SpecError, match=told):
        parse_yaml("name: x\ntrain: {lr: 1}\nviews: {}\ntrain: {}\n", "file")
    with pytest.raises(SpecError, match="got 'c' in lines 1 and 2"):
        parse_yaml("search: [{a: 1, b: {c: 1,\n 'c': 2}}]", "file")


@pytest.mark.parametrize(
    "text",
    ["!!bool maybe", "!!timestamp foo", "!!float ''", "!!set {b}", "!!str 1", "!own [1]", "!!map"],
)
def test_a_tag_is_refused(text: str) -> None:
    told = r"file must not use YAML anchors .* or tags .*, got one in line 1"
    with pytest.raises(SpecError, match=told):
        parse_yaml(f"a: {text}", "file")
