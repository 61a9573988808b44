"""Description of the metrics missing from an incomplete event log."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mtcon_ray.base import paths
from mtcon_ray.base.status import Status
from mtcon_ray.records.events import Ended, Event, Reported, Started, last_change


def lost_in(
    folder: Path, own: list[Event], trials: Mapping[str | None, list[Event]], *, may_end_early: bool
) -> Iterator[str]:
    """Yields the gaps in a sweep's event log, given its own events and the events of its trials.

    Trials are numbered without gaps, and have a folder of checkpoints from their first epoch on.
    `may_end_early` is True if a plateau can end a training before its last epoch.
    """
    whole = {name for name in trials if name is not None}
    begun = {place.name for place in paths.list_trials(folder)}
    numbers = [paths.trial_number(name) for name in whole | begun]
    begun |= {paths.trial_name(number) for number in range(max(numbers, default=0))}
    for name in sorted(begun - whole):
        yield f"{name}: its events are missing: its metrics are lost"
    end = last_change(own)
    has_ended = isinstance(end, Ended) and end.status == Status.FINISHED
    for name in sorted(whole):
        for part in _lost_parts(trials[name], may_end_early=may_end_early):
            yield f"{name}: {part}"
        if has_ended and not isinstance(last_change(trials[name]), Ended):
            yield f"{name}: its end is missing: the metrics of its last epochs are lost"


def _lost_parts(events: list[Event], *, may_end_early: bool) -> Iterator[str]:
    """Yields the problems of a trial's events, as visible without other records."""
    epochs = [e.epoch for e in events if isinstance(e, Reported)]
    last = max(epochs, default=0)
    if missing := sorted(set(range(1, last + 1)) - set(epochs)):
        yield f"the metrics of these epochs are lost: {shown(missing)}"
    start, end = events[0], last_change(events)
    budget = int(start.tags["mtcon.epochs"]) if isinstance(start, Started) else last
    has_finished = isinstance(end, Ended) and end.status == "FINISHED"
    if has_finished and last < budget and not may_end_early:
        yield f"it has finished with {last} of {budget} epochs: the metrics of the others are lost"


def shown(values: Iterable[object], most: int = 8) -> str:
    """Returns the first of many values, separated by commas."""
    texts = [str(value) for value in values]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
