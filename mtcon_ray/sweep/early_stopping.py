"""Early stopping in a running sweep: the acting half of each registered scheduler.

The other half, `mtcon_ray.search.schedulers`, is plain data and part of the core, which imports
neither Ray nor Optuna.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from optuna.trial import FrozenTrial

from mtcon_ray.errors import SpecError
from mtcon_ray.search.schedulers import ASHA, Halving, SchedulerSpec
from mtcon_ray.sweep.halving import Rungs

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler

    from mtcon_ray.sweep.scheduler import History

# The names of the schedulers on which `EarlyStopping` can act.
ACTING = ("asha", "halving", "none")


class EarlyStopping:
    """The acting half of a scheduler, given its section of the spec."""

    def __init__(self, spec: SchedulerSpec) -> None:
        self._spec = spec

    def tune_scheduler(
        self, past: "Iterable[History]", continued: "Mapping[str, History]"
    ) -> "TrialScheduler":
        """Returns Tune's scheduler, given the values that earlier drivers of the sweep saw.

        `past` holds the histories of ended trials, `continued` those of resumed trials, by name.
        ASHA stops a trial when it reports at a rung. Otherwise Tune stops no trial.
        """
        # Imported here because `plan` needs this module, and ray.tune takes a second to import.
        from ray.tune.schedulers import FIFOScheduler

        from mtcon_ray.sweep.scheduler import ResumableASHA

        if isinstance(self._spec, ASHA.Spec):
            return ResumableASHA(self._spec, past, continued)
        return FIFOScheduler()

    def rungs(
        self, num_trials: int, epochs: Callable[[FrozenTrial], int], every: int
    ) -> Rungs | None:
        """Returns the rungs at which trials wait for each other; None if no trial waits.

        Trials of halving end by themselves at a rung; the searcher restarts those that go on.
        """
        if isinstance(self._spec, Halving.Spec):
            return Rungs(self._spec, num_trials, epochs, every)
        return None


def early_stopping(spec: SchedulerSpec) -> EarlyStopping:
    """Returns the acting half of a scheduler. Raises SpecError if it has none."""
    if spec.name not in ACTING:
        raise SpecError(
            f"search.scheduler must be one that sweeps can act on ({', '.join(ACTING)}), got "
            f"{spec.name!r}; give it an acting half in mtcon_ray/sweep/early_stopping.py"
        )
    return EarlyStopping(spec)
