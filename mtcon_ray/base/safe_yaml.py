"""Reading of untrusted YAML (plain values, no aliases, limited depth), and writing."""

import re
from pathlib import Path
from typing import Any

import yaml

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.errors import SpecError

MAX_DEPTH = 50
MAX_SPEC_BYTES = 1_000_000
# The parser in C takes an eighth of the time. PyYAML lacks it if it was built without libyaml.
# mypy accepts no base class chosen at run time.
SafeLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader with the numbers of YAML 1.2, which refuses repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """Returns a mapping. Raises SpecError for a repeated key. PyYAML would keep the last."""
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, str(key.value)), key.start_mark.line + 1
            if name in lines:
                raise SpecError(
                    f"must give a key once in a mapping, got {key.value!r} in lines "
                    f"{lines[name]} and {line}; keep one of them"
                )
            lines[name] = line
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper. It quotes strings that YAML 1.1 or YAML 1.2 reads as a number."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # PyYAML escapes rare line breaks in double quotes alone. Elsewhere they are read as blanks.
    style = '"' if re.search("[\x85\u2028\u2029]", value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


def _whole(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(node.value)
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


# PyYAML implements YAML 1.1. It reads 010 as 8, 1:30 as 90, 1e-3 as a text and 2026-01-31 as a
# date. The core schema of YAML 1.2 replaces these rules. The rules for booleans remain from YAML
# 1.1: without them `no` would become a text, which Python takes as true.
_NUMBERS = {
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_KEPT = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind in (_Loader, _Dumper):
    for _name, _form in _NUMBERS.items():
        _tag, _pattern = f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_form})\Z")
        _kind.add_implicit_resolver(_tag, _pattern, list("-+.0123456789"))
_Dumper.add_representer(str, _text)
_Loader.add_constructor("tag:yaml.org,2002:int", _whole)


def parse_yaml(text: str, where: str) -> Any:
    """Returns the plain values of a YAML text.

    Raises SpecError for invalid YAML, a repeated key, anchors and aliases (ten lines of aliases
    can expand to a billion values), tags, and more than MAX_DEPTH levels. Its message begins with
    `where`.
    """
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            has_anchor = isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None)
            # PyYAML's constructors raise any error for a text that does not fit the tag.
            if has_anchor or getattr(event, "tag", None) not in (None, "!"):
                line = event.start_mark.line + 1 if event.start_mark else "?"
                raise SpecError(
                    f"must not use YAML anchors (& or *) or tags (!), got one in line {line}; "
                    "write plain values, or quote the text"
                )
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise SpecError(f"must have at most {MAX_DEPTH} levels, got more")
        return yaml.load(text, Loader=_Loader)
    except SpecError as error:
        raise SpecError(f"{where} {error}") from None
    # Python raises ValueError for an integer of 5000 digits.
    except (yaml.YAMLError, ValueError) as error:
        tabs = re.finditer(r"^ *\t", text, re.MULTILINE)
        lines = [str(text.count("\n", 0, tab.start()) + 1) for tab in tabs]
        hint = f"; indent line {lines[0]} with spaces in place of tabs" if lines else ""
        raise SpecError(f"{where} is not valid YAML: {error}{hint}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file.

    Raises SpecError if the file cannot be read, is larger than MAX_SPEC_BYTES, or is not a mapping.
    """
    try:
        with open_regular(path, MAX_SPEC_BYTES) as file:
            text = file.read().decode("utf-8")
    except OSError as error:
        raise SpecError(f"{path} must be a readable YAML file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} must be a YAML text in UTF-8") from None
    raw = parse_yaml(text, str(path))
    if not isinstance(raw, dict):
        raise SpecError(f"{path} must hold a mapping of sections, got {type(raw).__name__}")
    return raw


def dump_yaml(value: Any) -> str:
    """Returns plain values as a YAML text, from which `parse_yaml` returns equal values."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
