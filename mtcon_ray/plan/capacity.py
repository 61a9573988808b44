"""Nodes of a cluster, and the number of trials of a spec that fit on them at a time."""

import math
from dataclasses import dataclass

from mtcon_ray.errors import ResourceError
from mtcon_ray.spec.run_spec import RunSpec


@dataclass(frozen=True)
class NodeKind:
    """A kind of node: CPUs and GPUs of each, and their largest number (None: unknown)."""

    name: str
    cpus: float
    gpus: float
    count: int | None


# Ray 2.60 counts resources in this many units, and cuts off any fraction of a unit.
RAY_UNITS = 10_000


@dataclass(frozen=True)
class ClusterView:
    """The nodes available to a sweep, now or after scaling up, with at most `most` at once.

    `where` names the cluster in messages, which end with `hint` if the nodes do not suffice.
    """

    where: str
    kinds: tuple[NodeKind, ...]
    most: int | None = None
    hint: str = ""


def check_cluster(spec: RunSpec, cluster: ClusterView) -> int | None:
    """Returns the number of trials that fit at a time, None if unknown.

    Raises ResourceError if a worker fits on no node, or a trial's least number of workers does not
    fit on the whole cluster.
    """
    cpus, gpus = spec.resources.cpus, spec.resources.gpus
    low, high = spec.resources.worker_range

    def slots(kind: NodeKind) -> int:
        by_cpu = int(kind.cpus // cpus)
        units = max(1, int(gpus * RAY_UNITS))
        return min(by_cpu, int(kind.gpus * RAY_UNITS) // units) if gpus else by_cpu

    per_kind = {kind: slots(kind) for kind in cluster.kinds}
    if not any(per_kind.values()):
        most = [f"{k.name}: {k.cpus:g} CPUs, {k.gpus:g} GPUs" for k in cluster.kinds]
        raise ResourceError(
            f"resources must fit some node of {cluster.where}, got {cpus} CPUs and {gpus:g} GPUs "
            f"per worker; nodes: {'; '.join(most) or 'none'}; ask for less with "
            f"--set resources.gpus=... or resources.cpus=...{cluster.hint}"
        )
    if any(kind.count is None for kind, n in per_kind.items() if n):
        return spec.search.max_concurrent
    total, free = 0, math.inf if cluster.most is None else cluster.most
    # The kinds with the most room come first. Without a list of nodes: KubeRay's default is 2**31.
    for kind, n in sorted(per_kind.items(), key=lambda item: -item[1]):
        used = int(min(kind.count or 0, free))
        total, free = total + n * used, free - used
    if total < low:
        raise ResourceError(
            f"resources.workers must fit {cluster.where}, got {low} workers of {cpus} CPUs and "
            f"{gpus:g} GPUs where at most {total} fit; ask for fewer workers{cluster.hint}"
        )
    # Ray gives a trial all its permitted workers, and the next trial the rest.
    at_most, left = divmod(total, high)
    return min(at_most + (left >= low), spec.search.max_concurrent or total)
