"""Retention on disk: a sweep keeps the networks of its best `storage.keep` trials."""

from mtcon_ray.base.status import Status
from mtcon_ray.records.results import SweepResults, by_configuration


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
