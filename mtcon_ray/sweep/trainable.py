"""Tune's trainable for single-worker trials, in a process that is reused for further trials.

The next trial finds torch imported and the device initialised.
"""

from collections.abc import Generator
from typing import Any

from ray.tune import Trainable

from mtcon_ray.sweep.register import Line
from mtcon_ray.sweep.trial import Assignment, reports, trial_device


class ReusedTrainable(Trainable):
    """Trainable for a sequence of trials. `step` trains up to the next result."""

    def setup(self, config: dict[str, Any]) -> None:
        """Starts the first trial."""
        self._reports = self._train(Assignment.read(config))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Starts another trial in this process."""
        self._reports.close()
        self._reports = self._train(Assignment.read(new_config))
        return True

    def step(self) -> dict[str, Any]:
        """Trains up to the next result and returns it."""
        return next(self._reports)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Saves nothing for Tune: a trial's own checkpoints outlive every driver."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Loads nothing: a restarted trial finds its own checkpoint."""

    def _train(self, work: Assignment) -> Generator[dict[str, Any], None, None]:
        device = trial_device(work.spec.resources.gpus)
        line = Line(work.register, work.name, work.check_driver)
        yield from reports(work, device=device, should_stop=line)
