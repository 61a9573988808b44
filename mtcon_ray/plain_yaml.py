"""YAML from people we do not know: plain values, no aliases, no depth without end."""

from typing import Any

from mtcon_ray.errors import SpecError

MAX_DEPTH = 50


def parse_yaml(text: str, where: str) -> Any:
    """The plain values of a YAML text.

    Raises SpecError, which begins with `where`, for what is no YAML, for aliases (ten lines of
    them can stand for a billion values) and for more than MAX_DEPTH levels.
    """
    import yaml

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
        return yaml.safe_load(text)
    # ValueError: a date of month 13, a number of 5000 digits.
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"{where} is not valid YAML: {error}") from None
