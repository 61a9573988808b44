"""Error messages for pydantic's validation errors: path, rule, value, and way out."""

import re
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from mtcon_ray.errors import nearest
from mtcon_ray.registry import Spec, choice_fields, field_paths
from mtcon_ray.search.space import FORMS, Dimension

Location = tuple[int | str, ...]

# Names that other tools use for fields of this spec.
OTHER_WORDS = {
    "num_samples": "num_trials",
    "n_trials": "num_trials",
    "max_trials": "num_trials",
    "run_cap": "num_trials",
    "points_to_evaluate": "first_points",
    "max_concurrent_trials": "max_concurrent",
    "n_jobs": "max_concurrent",
    "timeout": "max_hours",
    "time_budget_s": "max_hours",
    "search_alg": "sampler",
    "pruner": "scheduler",
    "early_terminate": "scheduler",
    "metric": "objective",
    "monitor": "objective",
    "grace_period": "grace",
    "reduction_factor": "reduction",
    "eta": "reduction",
    "learning_rate": "lr",
    "base_lr": "lr",
    "wd": "weight_decay",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "early_stopping_patience": "patience",
    "train_batch_size": "batch_size",
    "per_device_train_batch_size": "batch_size",
    "gradient_clip_val": "max_grad_norm",
    "clip_grad": "max_grad_norm",
    "lr_scheduler": "lr_schedule",
    "optim": "optimizer",
    "backbone": "encoder",
    "arch": "encoder",
    "model_name": "encoder",
    "projection_dim": "head_dim",
    "proj_dim": "head_dim",
    "tau": "temperature",
    "image_size": "size",
    "img_size": "size",
    "num_workers": "workers",
    "cpus_per_trial": "cpus",
    "gpus_per_trial": "gpus",
    "storage_path": "root",
    "experiment_name": "experiment",
    "tracking_uri": "uri",
}
# Values that other tools write, and ours.
OTHER_VALUES = {
    "bf16": "bfloat16",
    "bf16-mixed": "bfloat16",
    "fp32": "float32",
    "32": "float32",
    "32-true": "float32",
}
# Kinds of values, by the first word of pydantic's error types, as in int_parsing.
KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping of fields",
}
MAX_SHOWN = 200
MAX_LINES = 20


def explain(error: ValidationError, model: type[Spec]) -> str:
    """Returns a message with a line for each of the first MAX_LINES problems of a validation."""
    broken: dict[str, list[tuple[str, str]]] = {}
    lines: dict[str, str] = {}
    for number, problem in enumerate(error.errors(include_url=False)):
        if len(lines) == MAX_LINES:
            # The search for a similar key costs a millisecond, and nobody reads 50,000 lines.
            lines["..."] = f"... and {error.error_count() - number:,} more problems"
            break
        if problem["type"] == "too_short" and len(problem["input"]) >= problem["ctx"]["min_length"]:
            # pydantic counts valid entries only; each invalid one is reported by itself.
            continue
        location = _without_member(_without_kind(problem["loc"], model))
        path = ".".join(map(str, location))
        rule = _rule(problem, model)
        if rule is None:
            lines[f"{path} {len(lines)}"] = _line(problem, location, model)
            continue
        # pydantic reports one problem per member of a union; their rules are joined by "or".
        lines.setdefault(path, path)
        ending = f", got {_shown(problem['input'])}{_way_out(problem, model)}"
        broken.setdefault(path, []).append((rule, ending))
    for path, rules in broken.items():
        ending = rules[0][1] if len(rules) == 1 else rules[0][1].partition("; ")[0]
        lines[path] = f"{path} must {' or '.join(dict.fromkeys(r for r, _ in rules))}{ending}"
    return "\n  ".join(lines.values())


def _did_you_mean(names: list[str]) -> str:
    shown = sorted(names, key=lambda name: name.count("."))[:3]
    return f"; did you mean {' or '.join(map(repr, shown))}?" if shown else ""


def _line(problem: Any, location: Location, model: type[Spec]) -> str:
    """Returns the line of a problem at a place of the spec for which `_rule` returns None."""
    match problem["type"]:
        case "extra_forbidden":
            message = f"unknown key{_near_key(problem['loc'], model)}"
        case "union_tag_invalid":
            choice, tag = choice_fields(model)[location], problem["ctx"]["tag"]
            message = f"unknown {choice.key} {tag!r}{nearest(tag, choice.table)}"
            location = (*location, choice.key)
        case "union_tag_not_found":
            message = "is required"
            location = (*location, choice_fields(model)[location].key)
        case "missing":
            message = "is required"
        case "value_error":
            message = problem["msg"].removeprefix("Value error, ")
        case _:
            message = f"{problem['msg']}, got {_shown(problem['input'])}"
    path = ".".join(map(str, location))
    return f"{path}: {message}" if path else message


def _rule(problem: Any, model: type[Spec]) -> str | None:
    """Returns the text that follows "must", or None if the problem is not of that form."""
    location = problem["loc"]
    match problem["type"]:
        case "model_type" if _annotation_at(model, location) is Dimension:
            return f"be one of {FORMS}"
        case "tuple_type":
            entries = get_args(_annotation_at(model, location))
            fixed = entries and entries[-1] is not Ellipsis
            return f"be a list of {len(entries)} entries" if fixed else "be a list"
        case "too_short" | "string_too_short" if problem["ctx"]["min_length"] == 1:
            return "not be empty"
        case "model_attributes_type":
            return "be a mapping of fields or the name of a kind"
        case "invalid_key":
            return "have a text as its key"
    first, _, rest = problem["type"].partition("_")
    if first in KINDS and rest in ("type", "parsing", "from_float"):
        return f"be {KINDS[first]}"
    # pydantic's words, such as "Tuple should have at most 2 items after validation, not 3".
    rule = re.fullmatch(r"\w+ should (.+?)(?: after validation.*)?", problem["msg"])
    return rule[1] if rule else None


def _way_out(problem: Any, model: type[Spec]) -> str:
    """Returns the end of a message with a suggestion, or ""."""
    value = problem["input"]
    match problem["type"]:
        case "tuple_type" if isinstance(value, str | int | float):
            entries = get_args(_annotation_at(model, problem["loc"]))
            return f"; write [{value}]" if entries and entries[-1] is Ellipsis else ""
        case "string_type" if isinstance(value, int | float):
            return "; put it in quotes"
        case "literal_error" if (ours := OTHER_VALUES.get(str(value))) is not None:
            return f"; did you mean {ours!r}?" if f"'{ours}'" in problem["msg"] else ""
        case _:
            return ""


def _near_key(location: Location, model: type[Spec]) -> str:
    """Returns the end of a message about an unknown key.

    It suggests a similar field of the same section, of another kind or of another section; if
    there is none, it lists the fields of the section.
    """
    key, section = str(location[-1]), _annotation_at(model, location[:-1])
    beside = _names(section)
    if section is Dimension:
        return f"; write {FORMS}"
    ours = OTHER_WORDS.get(key)
    if ours in beside:
        return _did_you_mean([str(ours)])
    if ours is None and get_close_matches(key, beside, n=1):
        return nearest(key, beside)
    location = _without_kind(location, model)
    if choice := choice_fields(model).get(location[:-1]):
        owners = [name for name in choice.table if key in _names(choice.table[name].Spec)]
        if owners:
            return f"; it belongs to {choice.key} {' or '.join(map(repr, owners))}"
    place = ".".join(map(str, location))
    # Sections and fields below the first level.
    below = [path for path in field_paths(model) if "." in path and path != place]
    elsewhere = [path for path in below if path.rpartition(".")[2] == (ours or key)]
    return _did_you_mean(elsewhere) or nearest(key, beside)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."


def _without_kind(location: Location, model: type[Spec]) -> Location:
    """Returns a location without the kind that pydantic inserts after the section."""
    for place, choice in choice_fields(model).items():
        n = len(place)
        if location[:n] == place and len(location) > n and location[n] in set(choice.table):
            return location[:n] + location[n + 1 :]
    return location


def _without_member(location: Location) -> Location:
    """Returns a location up to the field, without the union member that pydantic appends."""
    for i, key in enumerate(location):
        # In a search space `int` is the name of a kind of dimension.
        if isinstance(key, str) and "space" not in location[:i]:
            is_type = key in ("int", "float", "str", "bool") or key.startswith("constrained-")
            if is_type or key.startswith(("tuple[", "dict[")):
                return location[:i]
    return location


def _annotation_at(model: Any, location: Location) -> Any:
    """Returns the type of the field at one of pydantic's locations, or None if unknown."""
    choices = choice_fields(model)
    for i, key in enumerate(location):
        choice = choices.get(location[:i])
        if choice and key in set(choice.table):
            model = choice.table[str(key)].Spec
        elif isinstance(model, type) and issubclass(model, BaseModel):
            fields = {field.alias or name: field for name, field in model.model_fields.items()}
            model = _bare(fields[str(key)].annotation) if key in fields else None
        elif get_origin(model) is dict:
            model = _bare(get_args(model)[1])
        else:
            return None
    return model


def _bare(annotation: Any) -> Any:
    """Returns an annotation without `| None`."""
    if get_origin(annotation) in (Union, UnionType):
        members = [m for m in get_args(annotation) if m is not NoneType]
        return members[0] if len(members) == 1 else annotation
    return annotation


def _names(section: Any) -> list[str]:
    """Returns the field names of a section as users write them; [] if it is no section."""
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return []
    return [field.alias or name for name, field in section.model_fields.items()]
