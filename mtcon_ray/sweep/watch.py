"""Tells the observer what Tune sees, and notices when nothing moves."""

import time
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from mtcon_ray.observer import Observer
from mtcon_ray.sweep.stopping import STALL_SECONDS, Stop

LOOK_SECONDS = 1.0


class Watch(Callback):
    """Forwards each report; asks the sweep to stop when no trial can be placed for too long."""

    def __init__(self, observer: Observer, stop: Stop, request: str) -> None:
        self._observer = observer
        self._stop = stop
        self._request = request
        self._last_running = self._last_look = time.monotonic()

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        """Tune pickles its callbacks and we read none of it back; an observer may not pickle."""
        return Callback, ()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """One validation probe, or the end, of one trial."""
        if "epoch" in result:
            epochs = round(100 * result["epoch"] / result["budget"])
            self._observer.on_report(
                trial.config["trial"], result["epoch"], epochs, dict(result["metrics"])
            )

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """One turn of Tune's loop."""
        now = time.monotonic()
        if now - self._last_look < LOOK_SECONDS:  # at all trials there are, each time
            return
        self._last_look = now
        waiting = [t for t in trials if t.status == Trial.PENDING]
        if not waiting or any(t.status == Trial.RUNNING for t in trials):
            self._last_running = now
        elif now - self._last_running > STALL_SECONDS:
            self._stop.ask(
                f"no trial could be placed for {STALL_SECONDS:.0f} s: {waiting[0].config['trial']} "
                f"waits for {self._request}, which the cluster does not give"
            )
