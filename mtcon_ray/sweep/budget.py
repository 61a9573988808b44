"""The limits on a sweep's time: `search.max_hours` and `search.max_device_hours`."""

import time
from collections.abc import Callable

from mtcon_ray.search.spec import SearchSpec


class Budget:
    """Clock of one driver that ends the suggestion of trials at a limit.

    `spent` is the time that earlier drivers of this sweep gave to trials, in seconds. A trial takes
    `devices` at a time. `clock` returns seconds.
    """

    def __init__(
        self,
        search: SearchSpec,
        *,
        devices: float,
        spent: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._search = search
        self._devices = devices
        self._spent = spent
        self._clock = clock
        self._begun = clock()
        self._live: dict[str, float] = {}  # time at which a trial was given out, by its name

    def started(self, trial: str) -> None:
        """Counts a trial from now on."""
        self._live[trial] = self._clock()

    def ended(self, trial: str) -> None:
        """Counts a trial no longer, if it was counted."""
        now = self._clock()
        self._spent += now - self._live.pop(trial, now)

    @property
    def exceeded(self) -> str | None:
        """The limit that is reached, in words; None below both limits."""
        now = self._clock()
        hours = (now - self._begun) / 3600
        trials = self._spent + sum(now - begun for begun in self._live.values())
        device_hours = self._devices * trials / 3600
        for field, limit, used, then in (
            ("max_hours", self._search.max_hours, hours, ""),
            (
                "max_device_hours",
                self._search.max_device_hours,
                device_hours,
                ", a resume needs a higher one",
            ),
        ):
            if limit is not None and used >= limit:
                return f"search.{field} {limit:g} is reached{then}"
        return None

    def cut_short(self, ended: int, planned: int) -> str | None:
        """Returns why not all trials have ended, None if they have or no limit is reached."""
        limit = self.exceeded if ended < planned else None
        return limit and f"{limit}: {ended} of {planned} trials have ended, no more are given out"
