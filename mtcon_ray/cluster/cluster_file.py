"""Reader of cluster files: the nodes that a cluster may have, without a connection to it."""

from pathlib import Path
from typing import Any

import yaml

from mtcon_ray.capacity import ClusterView, NodeKind
from mtcon_ray.cluster.ray_private import kuberay_node_types
from mtcon_ray.errors import ResourceError

ANY_SIZE = 1e9


def view_of_file(path: Path) -> ClusterView:
    """Returns the node types of a Ray cluster YAML or of a KubeRay RayCluster, with their maxima.

    Raises ResourceError for a file that cannot be read or is neither of the two.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        if raw.get("kind") == "RayCluster":
            kinds, head = kuberay_node_types(raw["spec"])
            raw = {"available_node_types": kinds, "head_node_type": head}
        if raw.get("provider", {}).get("type") == "local":
            return ClusterView(str(path), (_fixed_kind(raw),))
        return _scaling_view(str(path), raw)
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ResourceError(
            "a cluster's file must be a Ray cluster YAML with available_node_types, or a "
            f"RayCluster of KubeRay's, got {path} ({error!r})"
        ) from None


def _scaling_view(where: str, raw: dict[str, Any]) -> ClusterView:
    most, kinds, heads = raw.get("max_workers"), [], 0
    for name, kind in raw["available_node_types"].items():
        resources = kind.get("resources", {})
        head = name == raw.get("head_node_type")
        limits = [n for n in (kind.get("max_workers"), most) if n is not None]
        count = 1 if head else min(limits, default=None)
        cpus, gpus = float(resources.get("CPU", 0)), float(resources.get("GPU", 0))
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
    return NodeKind("worker", float(size.get("CPU", 0)), float(size.get("GPU", 0)), count)
