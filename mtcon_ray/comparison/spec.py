"""The YAML file of a comparison: a shared base spec, the systems, and the claims."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from mtcon_ray.errors import SpecError, nearest
from mtcon_ray.metrics import slug
from mtcon_ray.registry import Spec
from mtcon_ray.safe_yaml import read_yaml
from mtcon_ray.spec import RunSpec, apply_override, parse_spec, set_value
from mtcon_ray.spec_errors import explain


class SystemSpec(Spec):
    """One system of a comparison."""

    method: dict[str, Any] | str = Field(description="the spec's `method` section, or its name")
    changes: dict[str, Any] = Field(
        {}, description="dotted path to value, where a system's recipe must differ from the base"
    )
    seeds: int = Field(1, ge=1, le=100, description="trainings: seed, seed + 1, ...")


class ClaimSpec(Spec):
    """A statement for the comparison to decide: one system's score is above another's."""

    better: str = Field(description="title of the system that is said to be better")
    than: str = Field(description="title of the system that it is compared with")
    label: str = Field(description="the task, on test, or the held-out label that is scored")
    margin: float = Field(0.0, ge=0, description="by more than this, a fraction")


class ComparisonSpec(Spec):
    """The shared base spec, the systems with their differences, and the claims."""

    version: Literal[1] = Field(1, description="of this format")
    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,60}$", description="lower case letters, digits, . _ -"
    )
    base: dict[str, Any] = Field(description="a spec without name, method and search")
    systems: dict[str, SystemSpec] = Field(min_length=1, description="title to system")
    claims: tuple[ClaimSpec, ...] = Field((), description="statements to decide")


@dataclass(frozen=True)
class Comparison:
    """Validated specs by title; each is a sweep over seeds only."""

    name: str
    specs: dict[str, RunSpec]
    claims: tuple[ClaimSpec, ...] = ()  # claims whose systems are both among the specs


def load_comparison(
    path: Path, overrides: Iterable[str] = (), only: Iterable[str] = ()
) -> Comparison:
    """Loads a comparison from YAML; overrides `a.b=value` change the base spec of all systems.

    `only` selects systems by title; empty selects all. Raises SpecError for an invalid file or
    title, and for systems whose sweeps would share a folder.
    """
    try:
        given = ComparisonSpec.model_validate(read_yaml(path))
    except ValidationError as error:
        raise SpecError(f"{path}: {explain(error, ComparisonSpec)}") from None
    for override in overrides:
        apply_override(given.base, override)
    chosen = tuple(only) or tuple(given.systems)
    unknown = [title for title in chosen if title not in given.systems]
    if unknown:
        raise SpecError(f"no system {unknown[0]!r}; systems: {', '.join(given.systems)}")
    specs = {t: _run_spec(given, t, path) for t in given.systems if t in chosen}
    names = [spec.name for spec in specs.values()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"{path}: titles must differ in letters and digits, got {twice} twice")
    _check_claims(given, specs, path)
    claims = (c for c in given.claims if c.better in specs and c.than in specs)
    return Comparison(given.name, specs, tuple(claims))


def _check_claims(given: ComparisonSpec, specs: dict[str, RunSpec], path: Path) -> None:
    """Checks that each claim names two different systems and a label that both have.

    Raises SpecError otherwise.
    """
    for i, claim in enumerate(given.claims):
        where = f"{path}: claims.{i}"
        if claim.better == claim.than:
            raise SpecError(f"{where} must name two systems, got {claim.better!r} twice")
        for field, title in (("better", claim.better), ("than", claim.than)):
            if title not in given.systems:
                hint = nearest(title, given.systems)
                raise SpecError(f"{where}.{field} must name a system, got {title!r}{hint}")
            data = specs[title].data if title in specs else None
            labels = [*data.tasks, *data.held_out] if data else [claim.label]
            if claim.label not in labels:
                raise SpecError(
                    f"{where}.label must be a task or held-out label of {title!r}, got "
                    f"{claim.label!r}{nearest(claim.label, labels)}"
                )


def _run_spec(given: ComparisonSpec, title: str, path: Path) -> RunSpec:
    system = given.systems[title]
    search = {"sampler": "grid", "repeats": system.seeds, "scheduler": {"name": "none"}}
    own = {"name": f"{given.name}-{slug(title)}", "method": system.method, "search": search}
    raw = deepcopy({"version": 1, **given.base, **own})
    for place, value in system.changes.items():
        set_value(raw, place, value)
    return parse_spec(raw, where=f"{path}: systems.{title}", folder=path.resolve().parent)
