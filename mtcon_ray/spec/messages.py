"""Error messages for pydantic's validation errors: path, rule, value, and solution."""

import re
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from mtcon_ray.base.registry import Spec, choice_fields, field_paths
from mtcon_ray.errors import nearest
from mtcon_ray.spec.space import FORMS

Location = tuple[int | str, ...]

# The member of a union, as pydantic appends it to a location.
MEMBER = re.compile(r"int|float|str|bool|(constrained-|tuple\[|dict\[).*")
# pydantic's words, such as "Input should be a valid integer, unable to parse string as an integer".
RULE = re.compile(
    r"\w+ should (.+?)(?:, (?:unable|got) .*| or (?:instance|object) .*| after validation.*)?"
)
# Networks of torchvision that have no encoder of their own.
TORCHVISION = re.compile(r"resnet(?:34|101|152)|(?:convnext|efficientnet|densenet|swin|vit_)\w+")
MAX_SHOWN = 200
MAX_LINES = 20


def explain(error: ValidationError, model: type[Spec]) -> str:
    """Returns a message with a line for each of the first MAX_LINES problems of a validation."""
    rules: dict[str, list[str]] = {}
    lines: dict[str, str] = {}
    for number, problem in enumerate(error.errors(include_url=False)):
        if len(lines) == MAX_LINES:
            # The search for a similar key costs a millisecond, and nobody reads 50,000 lines.
            lines["..."] = f"... and {error.error_count() - number:,} more problems"
            break
        if problem["type"] == "too_short" and len(problem["input"]) >= problem["ctx"]["min_length"]:
            # pydantic counts valid entries only. Each invalid entry is reported by itself.
            continue
        location = _without_member(_without_kind(problem["loc"], model))
        path = ".".join(map(str, location))
        if (rule := _rule(problem)) is None:
            lines[f"{path} {number}"] = _line(problem, location, model)
            continue
        # pydantic reports a problem per member of a union. Their rules are joined by "or".
        rules.setdefault(path, []).append(rule)
        must = " or ".join(dict.fromkeys(rules[path]))
        lines[path] = f"{path} must {must}, got {_shown(problem['input'])}"
    return "\n  ".join(lines.values())


def _line(problem: Any, location: Location, model: type[Spec]) -> str:
    """Returns the line of a problem for which `_rule` returns None."""
    place = tuple(key for key in location if isinstance(key, str))  # without list indices
    match problem["type"]:
        case "extra_forbidden":
            message = f"unknown key{_near_key(problem['loc'], model)}"
        case "union_tag_invalid":
            choice, tag = choice_fields(model)[place], problem["ctx"]["tag"]
            near = nearest(tag, choice.table)
            if place == ("model", "encoder") and TORCHVISION.fullmatch(tag):
                near = f"; write model.encoder: {{name: torchvision, model: {tag}}}"
            message = f"unknown {choice.key} {tag!r}{near}"
            location = (*location, choice.key)
        case "missing" | "union_tag_not_found" as kind:
            message = "is required"
            if kind != "missing":
                location = (*location, choice_fields(model)[place].key)
        case "value_error":
            message = problem["msg"].removeprefix("Value error, ")
        case _:
            message = f"{problem['msg']}, got {_shown(problem['input'])}"
    path = ".".join(map(str, location))
    return f"{path}: {message}" if path else message


def _rule(problem: Any) -> str | None:
    """Returns the text after "must", or None if the problem has another form."""
    if problem["type"] == "model_type" and problem["ctx"]["class_name"] == "Dimension":
        return f"be one of {FORMS}"
    rule = RULE.fullmatch(problem["msg"])
    words = (rule[1] if rule else "").replace("tuple", "list").replace("valid string", "text")
    words = words.replace("valid list", "list such as [a, b]")
    return words.replace("valid dictionary", "mapping") or None


def _near_key(location: Location, model: type[Spec]) -> str:
    """Returns the end of a message about an unknown key.

    It suggests a similar field of the same section, of another kind or of another section. Without
    a similar field it lists the fields of the section.
    """
    key, place, paths = str(location[-1]), _without_kind(location, model)[:-1], field_paths(model)
    if "space" in place:
        return f"; write {FORMS}"
    if not place and key in ("base", "systems", "claims", "tune"):
        return " of a spec; files with it are for `mtcon-ray compare`"
    if choice := choice_fields(model).get(place):
        beside = _names(choice.table.spec(str(location[-2])))
    else:
        inside = [path.split(".") for path in paths]
        beside = [names[-1] for names in inside if names[:-1] == [*map(str, place)]]
    if get_close_matches(key, beside, n=1):
        return nearest(key, beside)
    if choice:
        owners = [name for name in choice.table if key in _names(choice.table.spec(name))]
        if owners:
            return f"; it belongs to {choice.key} {' or '.join(map(repr, owners))}"
    # Sections and fields below the first level.
    elsewhere = [path for path in paths if path.rpartition(".")[2] == key and "." in path]
    shown = sorted(elsewhere, key=lambda path: path.count("."))[:3]
    return f"; did you mean {' or '.join(map(repr, shown))}?" if shown else nearest(key, beside)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."


def _without_kind(location: Location, model: type[Spec]) -> Location:
    """Returns a location without the kind inserted by pydantic after the section."""
    for place, choice in choice_fields(model).items():
        n = len(place)
        if location[:n] == place and len(location) > n and location[n] in set(choice.table):
            return location[:n] + location[n + 1 :]
    return location


def _without_member(location: Location) -> Location:
    """Returns a location up to the field, without the union member appended by pydantic."""
    for i, key in enumerate(location):
        # In a search space `int` is the name of a kind of dimension.
        if "space" not in location[:i] and MEMBER.fullmatch(str(key)):
            return location[:i]
    return location


def _names(section: type[Spec]) -> list[str]:
    """Returns the field names of a section as users write them."""
    return [field.alias or name for name, field in section.model_fields.items()]
