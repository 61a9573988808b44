"""Description of the metrics missing from an incomplete event log."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mtcon_ray.base import paths
from mtcon_ray.base.status import Status

MOST = 100_000  # missing trials, or epochs of a trial, that are looked for

if TYPE_CHECKING:
    from mtcon_ray.records.results import TrialResult


def lost_in(folder: Path, trials: Iterable["TrialResult"], *, has_ended: bool) -> Iterator[str]:
    """Yields the gaps in the event log of a sweep, given all its trials by number.

    Trials are numbered without gaps, and have a folder of checkpoints from their first epoch on.
    `has_ended` is True if the sweep has ended with all its trials.
    """
    whole = {trial.name: trial for trial in trials}
    begun = {place.name for place in paths.list_trials(folder)}
    numbers = [paths.trial_number(name) for name in whole.keys() | begun]
    # A damaged log may have any number.
    last = min(max(numbers, default=0), len(numbers) + MOST)
    begun |= {paths.trial_name(number) for number in range(last)}
    for name in sorted(begun - whole.keys()):
        yield f"{name}: its events are missing: its metrics are lost"
    for name, trial in whole.items():
        for part in _lost_parts(trial):
            yield f"{name}: {part}"
        if has_ended and trial.status is Status.RUNNING:
            yield f"{name}: its end is missing: the metrics of its last epochs are lost"


def _lost_parts(trial: "TrialResult") -> Iterator[str]:
    """Yields the problems of a trial's events, as visible without other records."""
    last, epochs = trial.last_epoch, {epoch for epoch, _ in trial.reports}
    if missing := sorted(set(range(1, min(last, len(epochs) + MOST) + 1)) - epochs):
        yield f"the metrics of these epochs are lost: {shown(missing)}"
    if trial.status is Status.FINISHED and last < trial.epochs and not trial.may_end_early:
        text = f"it has finished with {last} of {trial.epochs} epochs"
        yield f"{text}: the metrics of the others are lost"


def shown(values: Iterable[object], most: int = 8) -> str:
    """Returns the first of many values, separated by commas."""
    texts = [str(value) for value in values]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
