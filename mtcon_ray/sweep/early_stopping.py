"""Early stopping in a running sweep: the acting half of each registered scheduler.

The other half, `mtcon_ray.search.schedulers`, is plain data and part of the core, which imports
neither Ray nor Optuna. Both halves are registered under the scheduler's name.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial

from mtcon_ray.errors import SpecError
from mtcon_ray.registry import Table
from mtcon_ray.search.schedulers import SchedulerSpec
from mtcon_ray.sweep.halving import Rungs

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler

    from mtcon_ray.sweep.scheduler import History


class EarlyStopping:
    """The acting half of a scheduler; this base class trains every trial to its end.

    A scheduler overrides `tune_scheduler`, `rungs` or both. `spec` is the scheduler's section.
    """

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def tune_scheduler(
        self, past: "Iterable[History]", continued: "Mapping[str, History]"
    ) -> "TrialScheduler":
        """Returns Tune's scheduler, given the values that earlier drivers of the sweep saw.

        `past` holds the histories of ended trials, `continued` those of resumed trials, by name.
        """
        # Imported here because `plan` needs this module, and ray.tune takes a second to import.
        from ray.tune.schedulers import FIFOScheduler

        return FIFOScheduler()

    def rungs(
        self, num_trials: int, epochs: Callable[[FrozenTrial], int], every: int
    ) -> Rungs | None:
        """Returns the rungs at which trials wait for each other; None if no trial waits."""
        return None


EARLY_STOPPING: Table[EarlyStopping] = Table("early stopping")


@EARLY_STOPPING.register("none")
class NoEarlyStopping(EarlyStopping):
    """Trains every trial to its end."""


@EARLY_STOPPING.register("asha")
class StopByASHA(EarlyStopping):
    """Tune's ASHA stops a trial when it reports at a rung."""

    def tune_scheduler(
        self, past: "Iterable[History]", continued: "Mapping[str, History]"
    ) -> "TrialScheduler":
        from mtcon_ray.sweep.scheduler import ResumableASHA

        return ResumableASHA(self.spec, past, continued)


@EARLY_STOPPING.register("halving")
class StopByHalving(EarlyStopping):
    """Trials end by themselves at a rung; the searcher restarts those that go on."""

    def rungs(self, num_trials: int, epochs: Callable[[FrozenTrial], int], every: int) -> Rungs:
        return Rungs(self.spec, num_trials, epochs, every)


def early_stopping(spec: SchedulerSpec) -> EarlyStopping:
    """Returns the acting half of a scheduler. Raises SpecError if none is registered."""
    if spec.name not in EARLY_STOPPING:
        raise SpecError(
            f"search.scheduler must be one that sweeps can act on ({', '.join(EARLY_STOPPING)}), "
            f"got {spec.name!r}; register its acting half in mtcon_ray/sweep/early_stopping.py"
        )
    return EARLY_STOPPING[spec.name](spec)
