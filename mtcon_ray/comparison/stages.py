"""The stages of a comparison: the plans of all its sweeps, made before the first training."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mtcon_ray.capacity import ClusterView
from mtcon_ray.comparison.spec import Comparison
from mtcon_ray.paths import sweep_folder
from mtcon_ray.plan import Plan
from mtcon_ray.planning import make_plan
from mtcon_ray.preparation import check_data
from mtcon_ray.sweep.prior import first_configurations, prior_trials


class Stage(NamedTuple):
    """One sweep of a system: "tune", "again" or "seeds", the final one."""

    title: str
    name: str
    plan: Plan


def plan_stages(comparison: Comparison, root: Path, cluster: ClusterView) -> Iterator[Stage]:
    """Yields the plan of every sweep, in the order of training.

    Raises CheckpointError, DataError, ResourceError or SpecError if a sweep could never run.
    """
    for title, final in comparison.specs.items():
        tuning = comparison.tuning.get(title)
        specs = {"tune": tuning.first, "again": tuning.again} if tuning else {}
        table = check_data(final, root).table
        for name, spec in {**specs, "seeds": final}.items():
            if spec is not None:
                folder = sweep_folder(root, spec.name)
                first_configurations(spec, prior_trials(spec, root, folder))
                plan = make_plan(spec, root, cluster, table, count_parameters=False)
                yield Stage(title, name, plan)
