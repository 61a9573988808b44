"""Check that a sweep or training is resumed with the spec that it was started with."""

from mtcon_ray.errors import SweepError
from mtcon_ray.spec import RunSpec, dump_spec, with_scheduler, with_values
from mtcon_ray.training.checkpoint import differences

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
    free: tuple[str, ...] = FREE_ON_RESUME
    if given.search.num_configurations >= stored.search.num_configurations:
        free += ("search.num_trials",)
    # The field may be omitted (a default) in one spec and written out in the other: earlier
    # versions wrote its value into every recorded spec.
    if _warmups(stored) == _warmups(given):
        free += ("train.warmup_epochs",)
    before, after = dump_spec(with_scheduler(stored)), dump_spec(with_scheduler(given, stored))
    changed = [
        f"{path}: {old!r} then, {new!r} now"
        for path, old, new in differences(before, after)
        if not path.startswith(free)
    ]
    if changed:
        raise SweepError(
            "what is resumed must keep its spec (search.num_trials may grow; resources, tracking "
            "and storage may change), got other values:\n  " + "\n  ".join(changed) + "\n"
            "give the spec it was started with (--set PATH=VALUE sets single fields), or start "
            "anew with another --name"
        )


def _warmups(spec: RunSpec) -> list[float]:
    """Returns the warm-up in epochs for each listed or extreme value of train.epochs."""
    searched = spec.search.space.get("train.epochs")
    numbers = searched.extremes if searched else [spec.train.epochs]
    return [with_values(spec, {"train.epochs": n, "search": {}}).train.warmup for n in numbers]
