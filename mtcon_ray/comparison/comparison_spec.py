"""The YAML file of a comparison: a shared base spec, the systems, their tuning, and the claims."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from mtcon_ray.base.metrics import slug
from mtcon_ray.base.registry import BelowOne, Spec, rebuild
from mtcon_ray.base.safe_yaml import read_yaml
from mtcon_ray.comparison.tuning import MAX_TUNED, TuneSpec, Tuning, check_equal, make_tuning
from mtcon_ray.errors import SpecError, nearest
from mtcon_ray.spec import run_spec
from mtcon_ray.spec.messages import explain
from mtcon_ray.spec.search import LIMITS
from mtcon_ray.spec.space import Dimension

MAX_SYSTEMS = 100


class SystemSpec(Spec):
    """A system of a comparison."""

    method: dict[str, Any] | str = Field(description="the spec's `method` section, or its name")
    changes: dict[str, Any] = Field({}, description="dotted path to value, in place of the base's")
    seeds: int | None = Field(
        None, ge=1, le=100, description="trainings: seed, seed + 1, ... null: tune.seeds, else 1"
    )
    tuned: bool = Field(True, description="false: trained unchanged while others are tuned")
    space: dict[str, Dimension | None] = Field(
        {},
        description="searched fields of this system, in addition to tune.space or replacing its "
        "fields. null: the field is not searched",
    )


class ClaimSpec(Spec):
    """A statement for the comparison to decide: the score of a system is above another's."""

    better: str = Field(description="title of the system claimed to be better")
    than: str = Field(description="title of the other system")
    label: str = Field(description="the scored label: a task, on test, or a held-out label")
    margin: BelowOne = Field(0.0, description="by more than this, a fraction: 0.01 is a point")


class ComparisonSpec(Spec):
    """The shared base spec, the systems with their differences, and the claims."""

    version: Literal[1] = Field(1, description="of this format")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,60}$", description="of a-z, 0-9, . _ -")
    base: dict[str, Any] = Field(description="a spec without name or method, only limits in search")
    systems: dict[str, SystemSpec] = Field(
        min_length=1, max_length=MAX_SYSTEMS, description="title to system"
    )
    tune: TuneSpec | None = Field(None, description="null: systems are trained as they stand")
    claims: tuple[ClaimSpec, ...] = Field((), description="statements to decide")

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if own := self.base.keys() & {"name", "method"}:
            raise ValueError(f"base.{min(own)} must be left out: each system has its own")
        shared = self.tune.space if self.tune else {}
        for title, system in self.systems.items():
            if system.space and not (self.tune and system.tuned):
                raise ValueError(
                    f"systems.{title}.space must be empty unless the system is tuned, got "
                    f"{list(system.space)}; add `tune`, or remove `tuned: false`"
                )
            for path, dimension in system.space.items():
                if dimension is None and path not in shared:
                    raise ValueError(
                        f"systems.{title}.space.{path} must be in tune.space to be null"
                        f"{nearest(path, shared)}"
                    )
        tuned = [s.space for s in self.systems.values() if self.tune and s.tuned]
        dimensions = [d for own in tuned for d in {**shared, **own}.values() if d is not None]
        if (num_values := sum(len(d.extremes) for d in dimensions)) > MAX_TUNED:
            raise ValueError(
                f"tune.space must list at most {MAX_TUNED:,} values, counted for each system, got "
                f"{num_values:,}; give ranges in their place, such as {{uniform: [low, high]}}"
            )
        return self


class Comparison(NamedTuple):
    """Validated specs by title, each a sweep over seeds only.

    The spec of a tuned system still lacks the values to be chosen by `tuning`, by title. With
    tuning the seeds of all systems, tuned or not, follow the seeds of the tuning sweeps.
    """

    name: str
    specs: dict[str, run_spec.RunSpec]
    claims: tuple[ClaimSpec, ...] = ()  # claims with both systems among the specs
    tuning: Mapping[str, Tuning] = {}
    notes: tuple[str, ...] = ()  # on overrides that some systems do not follow


def load_comparison(
    path: Path, overrides: Sequence[str] = (), only: Collection[str] = ()
) -> Comparison:
    """Loads a comparison from YAML. Overrides `a.b=value` change the base spec of all systems.

    Overrides of `tune.` change the section `tune` instead.
    `only` selects systems by title. If it is empty, all are selected. Raises SpecError for an
    invalid file or title, for a claim about a label missing in the data, for systems with sweeps in
    the same folder, and for tuned systems with different numbers of configurations.
    """
    raw, folder = read_yaml(path), path.resolve().parent
    base = raw.get("base")
    if isinstance(base, dict):
        if run_spec.import_plugins(base, where=f"{path}: base", folder=folder):
            rebuild(TuneSpec, ComparisonSpec)
        # The section `tune` has fields of `search`, also a space with paths as keys.
        whole = {"search": raw.get("tune")}
        systems = raw["systems"] if isinstance(raw.get("systems"), dict) else {}
        parts = [each for each in (raw.get("tune"), *systems.values()) if isinstance(each, dict)]
        spaces: list[dict[str, Any]] = [
            {"search": {key: part.get(key) for key in ("space", "first_points")}} for part in parts
        ]
        for override in overrides:
            if (tuned := override.removeprefix("tune.")) != override:
                run_spec.apply_override(whole, f"search.{tuned}")
                raw["tune"] = whole["search"]
            else:
                run_spec.apply_override(base, override)
                for each in () if override.startswith("search") else spaces:
                    run_spec.apply_override(each, override)  # its field leaves the spaces
    try:
        given = ComparisonSpec.model_validate(raw)
    except ValidationError as error:
        raise SpecError(f"{path}: {explain(error, ComparisonSpec)}") from None
    if unknown := [title for title in only if title not in given.systems]:
        raise SpecError(f"no system {unknown[0]!r}; systems: {', '.join(given.systems)}")
    sweeps = {t: _specs(given, t, path) for t in given.systems if t in only or not only}
    specs = {title: final for title, (final, _) in sweeps.items()}
    tuning = {title: tuned for title, (_, tuned) in sweeps.items() if tuned}
    check_equal(tuning, str(path))
    names = [s.name for final, tuned in sweeps.values() for s in (final, *(tuned or ())) if s]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SpecError(f"{path}: titles must differ in letters and digits, got {twice} twice")
    _check_claims(given, specs, path)
    claims = (c for c in given.claims if c.better in specs and c.than in specs)
    notes = (_kept(given, specs, override.partition("=")[0].strip()) for override in overrides)
    # A folder of its own: the table of some systems does not replace the table of all.
    name = f"{given.name}-only" if only else given.name
    return Comparison(name, specs, tuple(claims), tuning, tuple(filter(None, notes)))


def _kept(given: ComparisonSpec, titles: Collection[str], place: str) -> str:
    """Returns a note on the systems that keep their own value of an overridden field, else ""."""
    changed = {title: [f"{each}." for each in given.systems[title].changes] for title in titles}
    ends = f"{place}."
    own = [t for t in titles if any(c.startswith(ends) or ends.startswith(c) for c in changed[t])]
    return f"--set {place} does not reach {str(own)[1:-1]}, whose `changes` have it" if own else ""


def _check_claims(given: ComparisonSpec, specs: dict[str, run_spec.RunSpec], path: Path) -> None:
    """Checks that each claim names two different systems, and a label of these among the specs.

    Raises SpecError otherwise.
    """
    for i, claim in enumerate(given.claims):
        where = f"{path}: claims.{i}"
        if claim.better == claim.than:
            raise SpecError(f"{where} must name two systems, got {claim.better!r} twice")
        for role, title in (("better", claim.better), ("than", claim.than)):
            if title not in given.systems:
                hint = nearest(title, given.systems)
                raise SpecError(f"{where}.{role} must name a system, got {title!r}{hint}")
            labels = [*specs[title].labels.kinds] if title in specs else [claim.label]
            if claim.label not in labels:
                raise SpecError(
                    f"{where}.label must be a task or held-out label of {title!r}, got "
                    f"{claim.label!r}{nearest(claim.label, labels)}"
                )


def _specs(given: ComparisonSpec, title: str, path: Path) -> tuple[run_spec.RunSpec, Tuning | None]:
    """Returns the spec of a system's final trainings, and its sweeps of tuning, if it is tuned."""
    system, tune, raw = given.systems[title], given.tune, _raw(given, title)
    where, folder = f"{path}: systems.{title}", path.resolve().parent
    limits = raw.get("search") or {}
    if not isinstance(limits, dict):
        raise SpecError(f"{where}: search must be a mapping, got {limits!r}")
    if others := [name for name in limits if name not in LIMITS]:
        raise SpecError(
            f"{where}: search.{others[0]} must be left out, because a comparison searches by "
            f"`tune` alone; of search it takes {', '.join(LIMITS)}"
        )
    seeds = system.seeds or (tune.seeds if tune else 1)
    search: dict[str, Any] = {"sampler": "grid", "repeats": seeds, "scheduler": {"name": "none"}}
    if tune is not None:
        search["objective"] = tune.objective  # the network is selected by it too
    final = run_spec.parse_spec({**raw, "search": search | limits}, where=where, folder=folder)
    if not final.evaluate.test:
        raise SpecError(f"{where}: evaluate.test must be true, the table has the scores on test")
    if tune is None:
        return final, None
    later = run_spec.with_values(final, {"seed": final.seed + tune.repeats})
    if not system.tuned:
        return later, None
    if not final.method.trains:
        raise SpecError(f"{where}.tuned must be false for {final.method.name}: it trains nothing")
    return later, make_tuning(tune, system.space, raw, where=where, folder=folder)


def _raw(given: ComparisonSpec, title: str) -> dict[str, Any]:
    """Returns a system's spec as plain data, of `search` what the base has."""
    system = given.systems[title]
    name = slug(title)
    name = name if name.isascii() else name.encode("punycode").decode()
    own = {"name": f"{given.name}-{name}", "method": system.method}
    raw = deepcopy({"version": 1, **given.base, **own})
    for place, value in sorted(system.changes.items(), key=lambda each: each[0].count(".")):
        run_spec.set_value(raw, place, value)
    return raw
