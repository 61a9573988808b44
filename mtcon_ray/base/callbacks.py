"""Callback interface of sweeps, for displays such as the console."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Callbacks:
    """Base class with an empty method for each event of a sweep.

    The methods are called in the driver's main thread, so a slow method slows down the sweep.
    """

    def on_note(self, text: str) -> None:
        """Called with a line of news, such as "the tracking server is away; events are kept"."""

    def on_abort(self, error: str) -> None:
        """Called from another thread before the process ends with this error.

        The process ends because a call of Ray does not return, so nothing can be raised.
        """

    def on_phase(self, what: str) -> None:
        """Called before a long preparation, such as "connecting to Ray". Not called at its end."""

    def on_download(self, done: int, total: int) -> None:
        """Called with the bytes downloaded from an object store so far, and their total."""

    def on_decode(self, done: int, total: int) -> None:
        """Called with the number of images decoded so far, and their total."""

    def on_embed(self, done: int, total: int) -> None:
        """Called with the number of images embedded so far, and their total."""

    def on_start(self, name: str, folder: Path, plan: Any) -> None:
        """Called when a sweep starts. `plan` is a `mtcon_ray.plan.plan.Plan`."""

    def on_suggest(self, trial: str, params: Mapping[str, Any]) -> None:
        """Called when a trial starts, or continues after a resume."""

    def on_known(self, trial: Any, status: str) -> None:
        """Called for each trial of a resumed sweep, a `mtcon_ray.sweep.record.Trial`."""

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        """Called when a trial has completed an epoch, counted from 1, of its own `epochs`."""

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        """Called when a trial has ended. `status` is a value of `mtcon_ray.base.status.Status`."""


SILENT = Callbacks()
