"""The limits of a sweep on its hours, on its device hours and on time without a new epoch.

Also its early end: on a signal, an error, or when no trial can be placed.
"""

import time
from collections.abc import Callable

from mtcon_ray.spec.run_spec import RunSpec

# Time for trials to write a checkpoint after a signal, before Tune ends them.
GRACE_SECONDS = 30.0


class Stop:
    """Request to end the sweep, with its reason."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self.reason: str | None = None

    @property
    def asked(self) -> bool:
        """True once `ask` was called: no new trial begins, and each trial is asked to end."""
        return self.reason is not None

    def ask(self, reason: str) -> None:
        """Notes the request, which the executor passes on. May run in a signal handler."""
        if self.reason is None:
            self.reason = reason
            self._deadline = time.monotonic() + GRACE_SECONDS

    @property
    def is_due(self) -> bool:
        """True once the time for checkpoints is over."""
        return self._deadline is not None and time.monotonic() > self._deadline


class Limits:
    """Clock of a driver.

    `spent` is the time of trials under earlier drivers of this sweep, in seconds. `clock` returns
    seconds.
    """

    def __init__(
        self, spec: RunSpec, spent: float = 0.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._search, self._devices = spec.search, spec.resources.devices
        self._spent, self._clock = spent, clock
        self._begun = clock()
        self._live: dict[str, float] = {}  # start times by the trial's name
        self._progress: dict[str, float] = {}  # times of the last progress by the trial's name

    def started(self, name: str) -> None:
        """Counts the time of a trial from now on."""
        self._live[name] = self._progress[name] = self._clock()

    def progressed(self, name: str) -> None:
        """Counts time without a new epoch from now on."""
        self._progress[name] = self._clock()

    def ended(self, name: str) -> None:
        """Stops counting the time of a trial, if it was counted."""
        now = self._clock()
        self._spent += now - self._live.pop(name, now)
        self._progress.pop(name, None)

    @property
    def exceeded(self) -> str | None:
        """The reached limit in hours, in words, or None below both limits."""
        now, search = self._clock(), self._search
        if search.max_hours is not None and now - self._begun >= 3600 * search.max_hours:
            return f"search.max_hours {search.max_hours:g} is reached"
        trials = self._spent + sum(now - begun for begun in self._live.values())
        limit = search.max_device_hours
        if limit is not None and self._devices * trials >= 3600 * limit:
            return f"search.max_device_hours {limit:g} is reached, a resume needs a higher one"
        return None

    def stalled(self) -> list[str]:
        """Returns the trials without a new epoch for `search.stall_minutes`."""
        minutes, now = self._search.stall_minutes, self._clock()
        if minutes is None:
            return []
        return [name for name, since in self._progress.items() if now - since > 60 * minutes]

    @property
    def stall_reason(self) -> str:
        """The reason for ending the process of a stalled trial, in words."""
        return (
            f"no new epoch for {self._search.stall_minutes:g} minutes (search.stall_minutes, which "
            "includes the start and compiling)"
        )
