"""Single-worker trials in a warm, reused Tune actor: torch, data and device stay ready."""

from collections.abc import Generator
from typing import Any

from ray.tune import Trainable

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.sweep.trial import Assignment, open_trial_data, reports, trial_device


class WarmTrial(Trainable):
    """One trial after another; `step` trains up to the next validation probe."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take up the first trial."""
        self._data: dict[str, Dataset] = {}
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take up another trial in this process."""
        self._reports.close()
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train up to the next report."""
        return next(self._reports)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing for Tune to keep: a trial's own checkpoints outlive every driver."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: a trial that is started again finds its own checkpoint."""

    def _begin(self, config: dict[str, Any]) -> None:
        self._reports = self._train(Assignment.read(config))

    def _train(self, work: Assignment) -> Generator[dict[str, Any], None, None]:
        device = trial_device(work.spec.resources.gpus)
        return reports(work, lambda: self._open(work), device=device)

    def _open(self, work: Assignment) -> Dataset:
        """The trial's data, kept for the next trial that has the same."""
        key = work.spec.model_dump_json(include={"data", "views"})
        if key not in self._data:
            self._data = {key: open_trial_data(work)}
        return self._data[key]
