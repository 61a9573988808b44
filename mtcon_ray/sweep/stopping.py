"""Ending a sweep before its time: on a signal, or when nothing can be scheduled."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray.tune import Stopper

from mtcon_ray.sweep.trial import stop_path

# How long trials may take to checkpoint after a signal before Tune ends them.
GRACE_SECONDS = 30.0
# How long no trial may run while some wait for resources.
STALL_SECONDS = 900.0


class Stop(Stopper):
    """Whether the sweep shall end, and why; also Tune's stopper of last resort."""

    def __init__(self, sweep: Path) -> None:
        self._path = stop_path(sweep)
        self._path.unlink(missing_ok=True)
        self._deadline: float | None = None
        self.reason: str | None = None

    @property
    def asked(self) -> bool:
        """True once `ask` was called: no new trial is given out."""
        return self.reason is not None

    def ask(self, reason: str) -> None:
        """Have every trial checkpoint and end."""
        if self.reason is None:
            self.reason = reason
            # A full disk may not even take this: then the grace below ends the trials.
            with suppress(OSError):
                self._path.touch()
            self._deadline = time.monotonic() + GRACE_SECONDS

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Tune's question per trial: never; trials end by themselves."""
        return False

    def stop_all(self) -> bool:
        """Tune's question for all: once the grace is over."""
        return self._deadline is not None and time.monotonic() > self._deadline
