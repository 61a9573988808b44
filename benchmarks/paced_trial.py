"""Trainables without a training. One measures the time until Ray Tune asks for the next result.

They send their results as `mtcon_ray/sweep/trial.py` does. They import no torch, because 32
processes with torch would take minutes and gigabytes on a small machine.
"""

import json
import time
from pathlib import Path
from typing import Any

from ray.tune import Trainable

from mtcon_ray.base.metrics import LOSS, MEAN_ACCURACY
from mtcon_ray.base.status import Status
from mtcon_ray.records.events import Reported

EPOCH_SECONDS, PROBE_EVERY = 0.5, 4
RESULT_SECONDS = 1.0  # as in `sweep/trial.py`, which imports torch
NUM_METRICS = 20
EPOCHS = 60  # after the start of the last trial
# Metric: the share of the time for which the trial waits between its results.
WAITING = "benchmark/waiting"


SHORT_EPOCHS = 12


class Paced(Trainable):
    """Base of trials with nothing to save."""

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Saves nothing."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Loads nothing."""


class ShortTrial(Paced):
    """A trial of SHORT_EPOCHS epochs, with a result after each. It continues after a loss."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begins after the last epoch in the event log, as from a checkpoint."""
        self._name, self._epoch = config["trial"], config["logged"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begins another trial in this process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Waits for an epoch and returns its result."""
        time.sleep(EPOCH_SECONDS)
        self._epoch += 1
        done = self._epoch == SHORT_EPOCHS
        values = {LOSS: 1 / self._epoch, MEAN_ACCURACY: 1 - 1 / self._epoch}
        lines = [Reported(trial=self._name, epoch=self._epoch, metrics=values).to_line()]
        outcome = Status.FINISHED if done else Status.RUNNING
        return {"lines": lines, "outcome": outcome, "done": done}


class PacedTrial(Paced):
    """A trial with epochs of EPOCH_SECONDS. Its time counts once all trials have started."""

    def setup(self, config: dict[str, Any]) -> None:
        """Tells the other trials of the start, by a file."""
        self._name, common = config["trial"], config["common"]
        self._num_trials = json.loads(common["spec"])["search"]["max_concurrent"]
        self._started = Path(common["root"]) / "started"
        self._started.mkdir(exist_ok=True)
        (self._started / self._name).touch()
        self._epoch, self._last_epoch = 0, 0
        self._begun = self._returned = self._waited = 0.0

    def step(self) -> dict[str, Any]:
        """Waits until the next result is due and returns it."""
        now, lines, is_probe = time.monotonic(), list[str](), False
        if self._last_epoch:
            self._waited += now - self._returned
        elif len(list(self._started.iterdir())) == self._num_trials:
            self._begun, self._last_epoch = now, self._epoch + EPOCHS
        while not is_probe and time.monotonic() < now + RESULT_SECONDS:
            time.sleep(EPOCH_SECONDS)
            self._epoch += 1
            is_probe = self._epoch % PROBE_EVERY == 0 or self._epoch == self._last_epoch
            lines.append(self._line(is_probe))
        done = self._epoch == self._last_epoch
        self._returned = time.monotonic()
        outcome = Status.FINISHED if done else Status.RUNNING
        return {"lines": lines, "outcome": outcome, "done": done}

    def _line(self, is_probe: bool) -> str:
        values = {f"metric_{i}": self._epoch + i / 100 for i in range(NUM_METRICS)}
        values[LOSS] = 1 / self._epoch
        if self._last_epoch:
            values[WAITING] = self._waited / (time.monotonic() - self._begun)
        if is_probe:
            values[MEAN_ACCURACY] = 1 - 1 / self._epoch
        epoch, stamp = self._epoch, time.time_ns() // 1_000_000
        return Reported(trial=self._name, epoch=epoch, metrics=values, time_ms=stamp).to_line()
