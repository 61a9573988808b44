"""Early end of a whole sweep: on a signal, an error, or when no trial can be placed."""

import time
from contextlib import suppress
from pathlib import Path

from mtcon_ray.base.paths import stop_file
from mtcon_ray.base.root_files import remove, touch
from mtcon_ray.errors import SweepError

# Time for trials to write a checkpoint after a signal, before Tune ends them.
GRACE_SECONDS = 30.0


class Stop:
    """Request to end the sweep, with its reason."""

    def __init__(self, sweep: Path) -> None:
        self._path = stop_file(sweep)
        remove(self._path)
        self._deadline: float | None = None
        self.reason: str | None = None

    @property
    def asked(self) -> bool:
        """True once `ask` was called: no new trial is suggested."""
        return self.reason is not None

    def ask(self, reason: str) -> None:
        """Makes every trial write a checkpoint and end."""
        if self.reason is None:
            self.reason = reason
            # On a full disk, or with a link, this may fail. Then the executor ends the trials.
            with suppress(OSError, SweepError):
                touch(self._path)
            self._deadline = time.monotonic() + GRACE_SECONDS

    @property
    def is_due(self) -> bool:
        """True once the time for checkpoints is over."""
        return self._deadline is not None and time.monotonic() > self._deadline
