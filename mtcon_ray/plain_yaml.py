"""YAML from people we do not know: plain values, no aliases, no depth without end."""

import re
from typing import Any

import yaml

from mtcon_ray.errors import SpecError

MAX_DEPTH = 50
# PyYAML reads YAML 1.1, where a float needs a point, and its exponent a sign: 1e-3 is a text there.
_FLOAT = re.compile(r"[-+]?(?:(?:\.\d+|\d+\.\d*)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)$", re.ASCII)


class _Loader(yaml.SafeLoader):
    """The safe loader with the floats of YAML 1.2."""


class _Dumper(yaml.SafeDumper):
    """The safe dumper that quotes a text which `_Loader` would read as a float."""


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def parse_yaml(text: str, where: str) -> Any:
    """The plain values of a YAML text.

    Raises SpecError, which begins with `where`, for what is no YAML, for a key that a mapping has
    twice, for aliases (ten lines of them can stand for a billion values) and for more than
    MAX_DEPTH levels.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                line = event.start_mark.line + 1 if event.start_mark else "?"
                raise SpecError(
                    f"{where} must not use YAML anchors (& or *), got one in line {line}; "
                    "write the values out, or quote the text"
                )
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise SpecError(f"{where} must have at most {MAX_DEPTH} levels, got more")
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_keys(root, where)
        return loader.construct_document(root)
    # ValueError: a date of month 13, a number of 5000 digits.
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"{where} is not valid YAML: {error}") from None


def dump_yaml(value: Any) -> str:
    """Plain values as a YAML text that `parse_yaml` reads back equal."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def _check_keys(node: yaml.Node, where: str) -> None:
    """Raises SpecError for a key that a mapping has twice, of which YAML would keep the last."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(item, where)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[tuple[str, str], int] = {}
        for key, item in node.value:
            if isinstance(key, yaml.ScalarNode):
                name, line = (key.tag, key.value), key.start_mark.line + 1
                if name in lines:
                    raise SpecError(
                        f"{where} must give a key once in a mapping, got {key.value!r} in lines "
                        f"{lines[name]} and {line}; keep one of them"
                    )
                lines[name] = line
            _check_keys(item, where)
