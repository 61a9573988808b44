"""Retention on disk: a sweep keeps the networks of its best `storage.keep` trials."""

from collections.abc import Iterable
from dataclasses import replace

from mtcon_ray.base.paths import checkpoint_folder
from mtcon_ray.base.status import Status
from mtcon_ray.records.results import SweepResults, TrialResult, by_configuration
from mtcon_ray.training.checkpoint import discard_network


class Retention:
    """Remover of all networks except the networks of the best `keep` trials of a sweep."""

    def __init__(self, results: SweepResults, keep: int, trials: Iterable[TrialResult]) -> None:
        self._keep = keep
        self._removed: set[str] = set()
        self._results = replace(results, trials=tuple(trials))

    def ended(self, trial: TrialResult) -> None:
        """Counts an ended trial, and removes the networks beyond `keep`."""
        others = (other for other in self._results.trials if other.name != trial.name)
        self._results = replace(self._results, trials=(*others, trial))
        for removable in removable_trials(self._results, self._keep):
            if removable not in self._removed:
                self._remove(removable)

    def finish(self) -> None:
        """Removes all networks beyond `keep`. All processes of trials must have ended.

        Workers of a distributed trial may have written a network after it was removed.
        """
        for name in removable_trials(self._results, self._keep):
            self._remove(name)

    def _remove(self, name: str) -> None:
        discard_network(
            checkpoint_folder(self._results.folder, name), f"storage.keep: {self._keep}"
        )
        self._removed.add(name)


def removable_trials(results: SweepResults, keep: int) -> list[str]:
    """Returns the ended trials that are not among the best and can no longer win.

    If trials are repeated, the configuration with the best mean over its seeds wins by its best
    seed. So the best seed of each configuration stays until all its seeds have ended. A failed seed
    counts as open, because it may be tried again.
    """
    ended = [trial for trial in results.ranked() if trial.status.is_final]
    kept = {trial.name for trial in ended[:keep]}
    if results.winner is not None:
        kept.add(results.winner.name)
    decided = [trial for trial in ended if trial.status is not Status.FAILED]
    repeats = results.spec.search.repeats
    kept |= {c.trials[0].name for c in by_configuration(decided) if len(c.trials) < repeats}
    return [trial.name for trial in ended if trial.name not in kept]
