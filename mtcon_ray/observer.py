"""What a sweep or a training tells whoever watches it; the driver calls, a console draws."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Observer:
    """Hears every event of a sweep and does nothing; override what is of interest.

    Called on the driver's main thread, so a method that is slow slows the sweep.
    """

    def on_note(self, text: str) -> None:
        """One line of news, as "the tracking server is away; spooling"."""

    def on_phase(self, what: str) -> None:
        """A long preparation begins, as "connecting to Ray"; its end is not told."""

    def on_download(self, done: int, total: int) -> None:
        """Bytes of data downloaded from an object store so far, of how many."""

    def on_store(self, done: int, total: int) -> None:
        """Images decoded so far, of how many."""

    def on_start(self, name: str, folder: Path, plan: Any) -> None:
        """A sweep or training begins; `plan` is a `mtcon_ray.plan.Plan`."""

    def on_suggest(self, trial: str, params: Mapping[str, Any]) -> None:
        """A trial begins, or goes on after a resume."""

    def on_known(
        self, trial: str, params: Mapping[str, Any], status: str, epoch: int, epochs: int,
        value: float | None, reason: str | None,
    ) -> None:  # fmt: skip
        """A resumed sweep begins with this trial as it stands: `epoch` of `epochs` are trained."""

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        """A trial has completed an epoch, counted from 1, of its own number of epochs."""

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        """A trial has ended; status as in `mtcon_ray.results.TrialResult`."""
