"""The limits of a sweep on its hours and on time without a new epoch."""

import time

from mtcon_ray.spec.run_spec import RunSpec


class Limits:
    """Clock of a driver."""

    def __init__(self, spec: RunSpec) -> None:
        self._search, self._begun = spec.search, time.monotonic()
        self._progress: dict[str, float] = {}  # times of the last progress by the trial's name

    def progressed(self, name: str) -> None:
        """Counts a trial's time without a new epoch from now on."""
        self._progress[name] = time.monotonic()

    @property
    def exceeded(self) -> str | None:
        """The reached limit in hours, in words, or None below the limit."""
        hours = self._search.max_hours
        if hours is None or time.monotonic() - self._begun < 3600 * hours:
            return None
        return f"search.max_hours {hours:g} is reached"

    def has_stalled(self, name: str) -> bool:
        """Returns True if a trial in training has no new epoch for `search.stall_minutes`."""
        minutes = self._search.stall_minutes
        return minutes is not None and time.monotonic() - self._progress[name] > 60 * minutes

    @property
    def stall_reason(self) -> str:
        """The reason for ending the process of a stalled trial, in words."""
        return (
            f"no new epoch for {self._search.stall_minutes:g} minutes (search.stall_minutes, which "
            "includes the start and compiling)"
        )
