"""Start and end of tracking: a sender follows the event log of a sweep.

At the end the remaining events are sent, and a line reports if MLflow lacks any.
"""

from pathlib import Path

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import event_file
from mtcon_ray.plan.plan import Plan
from mtcon_ray.spec.resources import TrackingSpec
from mtcon_ray.tracking.login import check_login
from mtcon_ray.tracking.mlflow_server import sync_command
from mtcon_ray.tracking.sender import DRAIN_SECONDS, STOPPED_DRAIN_SECONDS, Sender


class Lifecycle:
    """The sender of a sweep, and its messages to the user. With `tracking.offline` it never starts.

    See `Sender` for `sender.limit` and `sender.hurry`.
    """

    def __init__(self, folder: Path, spec: TrackingSpec, uri: str, callbacks: Callbacks) -> None:
        self.folder, self.sender = folder, Sender(folder, uri, spec.experiment)
        self._offline, self._callbacks = spec.offline, callbacks

    def begin(self, plan: Plan) -> None:
        """Starts the sender, after the start of the sweep is in the event log."""
        if not self._offline:
            self.sender.start()
        self._callbacks.on_start(self.folder.name, self.folder, plan)
        for warning in plan.warnings:
            self._callbacks.on_note(f"warning: {warning}")

    def close(self, *, stopped: bool) -> None:
        """Sends the remaining events, for a shorter time after a stop, and ends the sender.

        Shows the records refused by MLflow, and the command to send the rest.
        """
        try:
            self.sender.close(STOPPED_DRAIN_SECONDS if stopped else DRAIN_SECONDS)
        finally:  # also after a second signal
            note, log = self._callbacks.on_note, event_file(self.folder)
            if refused := self.sender.refused:
                note(f"MLflow refused {len(refused)} records ({refused[0]}); they stay in {log}")
            if self.sender.pending():
                why = "tracking.offline is set" if self._offline else self.sender.reason
                way = sync_command(self.folder)
                note(f"not all is in MLflow ({why}); nothing is lost: send the rest with {way}")

    def send_rest(self) -> None:
        """Sends the events left unsent by a kill or an outage, and waits as at the end of a sweep.

        Raises UserError as `check_login` does.
        """
        if not self._offline and self.sender.pending():
            check_login(self.sender.uri)
            self._callbacks.on_phase("sending to MLflow")
            self.sender.start()
            self.close(stopped=False)
