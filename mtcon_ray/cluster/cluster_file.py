"""Reader of cluster files: the nodes that a cluster may have, without a connection to it."""

import math
from pathlib import Path
from typing import Any

import yaml

from mtcon_ray.capacity import ClusterView, NodeKind
from mtcon_ray.cluster.ray_private import kuberay_node_types
from mtcon_ray.errors import ResourceError
from mtcon_ray.presentation import one_line

ANY_SIZE = 1e9


def view_of_file(path: Path) -> ClusterView:
    """Returns the node types of a Ray cluster YAML or of a KubeRay RayCluster, with their maxima.

    Raises ResourceError for a file that cannot be read or is neither of the two.
    """
    try:
        with path.open(encoding="utf-8") as file:
            raw = yaml.safe_load(file)
        if raw.get("kind") == "RayCluster":
            kinds, head = kuberay_node_types(raw["spec"])
            raw = {"available_node_types": kinds, "head_node_type": head}
        if raw.get("provider", {}).get("type") == "local":
            return ClusterView(str(path), (_fixed_kind(raw),))
        return _scaling_view(str(path), raw)
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ResourceError(
            "a cluster's file must be a Ray cluster YAML with available_node_types, or a "
            f"RayCluster of KubeRay's, got {path} ({type(error).__name__}: {one_line(str(error))})"
        ) from None


def _scaling_view(where: str, raw: dict[str, Any]) -> ClusterView:
    most, kinds, heads = _max_workers(raw), [], 0
    for name, kind in raw["available_node_types"].items():
        head = name == raw.get("head_node_type")
        limits = [n for n in (_max_workers(kind), most) if n is not None]
        count = 1 if head else min(limits, default=None)
        cpus, gpus = _size(kind.get("resources") or {})
        if cpus == ANY_SIZE and count:
            count = None  # so that the number of trials at a time is unknown as well
        kinds.append(NodeKind(name, cpus, gpus, count))
        heads += bool(head and cpus)
    return ClusterView(where, tuple(kinds), None if most is None else most + heads)


def _fixed_kind(raw: dict[str, Any]) -> NodeKind:
    """Returns the workers of Ray's `local` provider, whose YAML has addresses but no sizes.

    Ray ignores the section `metadata`, so `metadata.worker` may hold the resources of one worker.
    """
    size = raw.get("metadata", {}).get("worker")
    if size is None:
        return NodeKind("a machine of worker_ips", ANY_SIZE, ANY_SIZE, None)
    count = len(raw["provider"]["worker_ips"])
    return NodeKind("worker", *_size({"CPU": 0, **size}), count)


def _size(resources: dict[str, Any]) -> tuple[float, float]:
    """Returns the CPUs and GPUs of a node type.

    Without CPUs the size is unknown: on AWS Ray takes it from the type of the machine.
    """
    unknown = ANY_SIZE if "CPU" not in resources else 0
    cpus, gpus = (float(resources.get(name, unknown)) for name in ("CPU", "GPU"))
    if not (math.isfinite(cpus) and math.isfinite(gpus) and min(cpus, gpus) >= 0):
        raise ValueError(f"CPU and GPU must be finite and at least 0, got {cpus:g} and {gpus:g}")
    return cpus, gpus


def _max_workers(section: dict[str, Any]) -> int | None:
    most = section.get("max_workers")
    if most is None or (isinstance(most, int) and most >= 0):
        return most
    raise ValueError(f"max_workers must be an integer of at least 0, got {most!r}")
