"""Tells the observer what Tune sees, and notices when nothing moves."""

import time
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from mtcon_ray.observer import Observer
from mtcon_ray.sweep.stopping import STALL_SECONDS, Stop

LOOK_SECONDS = 1.0
MAX_REASON = 500


class Watch(Callback):
    """Forwards each report; asks the sweep to stop when no trial can be placed for too long."""

    def __init__(self, observer: Observer, stop: Stop, request: str) -> None:
        self._observer = observer
        self._stop = stop
        self._request = request
        self._last_running = self._last_look = time.monotonic()
        self._trials: dict[str, Trial] = {}  # those in training, by name

    def error_of(self, name: str) -> str | None:
        """Returns the last error of a trial in training in a line, None without one.

        Tune writes it down before it tells the searcher that the trial has failed.
        """
        trial = self._trials.get(name)
        file = trial.error_file if trial is not None else None
        if not file or not Path(file).exists():
            return None
        return last_error(Path(file).read_text(encoding="utf-8", errors="replace"))

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial's process trains, for the first time or again."""
        self._trials[trial.config["trial"]] = trial

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial is over, early or not."""
        self._trials.pop(trial.config["trial"], None)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has failed for good; the searcher has been told."""
        self._trials.pop(trial.config["trial"], None)

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        """Tune pickles its callbacks and we read none of it back; an observer may not pickle."""
        return Callback, ()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """One validation probe, or the end, of one trial."""
        if "note" in result:
            self._observer.on_note(result["note"])
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


def last_error(text: str) -> str:
    r"""Returns the last failure in Tune's error file, as a line.

    A Python error ends with its own message; Ray's word on a lost process begins with it.

    >>> last_error("Failure # 1 (occurred at noon)\nTraceback:\n  f()\nKeyError: 'x'\n")
    "KeyError: 'x'"
    """
    failure = text.rpartition("Failure # ")[2].partition("\n")[2].strip()
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    if not lines:
        return "its process was lost"
    traced = any(line.startswith("Traceback") or "ray::" in line for line in lines)
    return (lines[-1] if traced else " ".join(lines))[:MAX_REASON]
