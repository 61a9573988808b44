"""Plans of specs for tests."""

from pathlib import Path
from typing import Any

from mtcon_ray.plan.capacity import ClusterView
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.planning import make_plan
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.sweep.preparation import check_data


def plan_of(spec: RunSpec, root: Path, cluster: ClusterView, **options: Any) -> Plan:
    """Returns the plan of a spec whose labels are read and whose images are checked."""
    data = check_data(spec, root)
    return make_plan(spec, root, cluster, data.table, downloads=data.downloads, **options)
