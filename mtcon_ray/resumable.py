"""Check that a sweep or training is resumed with the spec that it was started with."""

from typing import Any

from mtcon_ray.errors import SweepError
from mtcon_ray.spec import RunSpec, dump_spec, with_scheduler, with_values

# Fields that may differ on resume. search.num_trials may also grow.
FREE_ON_RESUME = (
    "resources",
    "tracking",
    "storage",
    "search.max_concurrent",
    "search.max_failures",
)


def check_resumable(stored: RunSpec, given: RunSpec) -> None:
    """Raises SweepError with all fields that differ and must not."""
    before = _flat(dump_spec(with_scheduler(stored)))
    now = _flat(dump_spec(with_scheduler(given, stored)))
    if _warmups(stored) == _warmups(given):
        # The field may be omitted (a default) in one spec and written out in the other: earlier
        # versions wrote its value into every recorded spec.
        now["train.warmup_epochs"] = before["train.warmup_epochs"]
    changed = []
    for path in sorted(before.keys() | now.keys()):
        old, new = before.get(path), now.get(path)
        if old == new or path.startswith(FREE_ON_RESUME):
            continue
        if path == "search.num_trials" and given.search.num_configurations >= (
            stored.search.num_configurations
        ):
            continue
        changed.append(f"{path}: {old!r} then, {new!r} now")
    if changed:
        raise SweepError(
            "what is resumed must keep its spec (search.num_trials may grow; resources, tracking "
            "and storage may change), got other values:\n  " + "\n  ".join(changed) + "\n"
            "give the spec it was started with, or start anew with another --name"
        )


def _warmups(spec: RunSpec) -> list[float]:
    """Returns the warm-up in epochs for each listed or extreme value of train.epochs."""
    searched = spec.search.space.get("train.epochs")
    numbers = searched.extremes if searched else [spec.train.epochs]
    return [with_values(spec, {"train.epochs": n, "search": {}}).train.warmup for n in numbers]


def _flat(raw: Any, path: str = "") -> dict[str, Any]:
    """Returns nested mappings as one, from dotted paths to values."""
    if isinstance(raw, dict) and raw:
        flat: dict[str, Any] = {}
        for key, value in raw.items():
            flat |= _flat(value, f"{path}.{key}" if path else str(key))
        return flat
    return {path: raw}
