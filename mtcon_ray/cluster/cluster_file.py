"""Reader of cluster files: the possible nodes of a cluster, without a connection to it."""

import math
from pathlib import Path
from typing import Any

import yaml

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.base.safe_yaml import SafeLoader
from mtcon_ray.display.presentation import one_line
from mtcon_ray.errors import ResourceError
from mtcon_ray.plan.capacity import ClusterView, NodeKind

ANY_SIZE = 1e9
# The name of the head's group in KubeRay, and the pods of a group without maxReplicas.
HEAD_GROUP, KUBERAY_MOST = "headgroup", 2**31 - 1
MAX_BYTES = 1_000_000


def view_of_file(path: Path, where: str = "") -> ClusterView:
    """Returns the node types of a Ray cluster YAML or of a file of KubeRay's, with their maxima.

    `where` names the cluster in messages, by default by its file. A file of KubeRay's may hold
    further documents. Raises ResourceError for an unreadable file, and unless the file describes
    exactly one cluster.
    """
    try:
        with open_regular(path, most=MAX_BYTES) as file:
            documents = yaml.load_all(file, Loader=SafeLoader)
            raw = _cluster_in([each for each in documents if each is not None])
        if raw.get("provider", {}).get("type") == "local":
            return ClusterView(where or str(path), (_fixed_kind(raw),))
        return _scaling_view(where or str(path), raw)
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, AttributeError) as error:
        raise ResourceError(
            f"cannot read a cluster from {path} ({type(error).__name__}: {one_line(str(error))}); "
            "give a Ray cluster YAML with available_node_types, or a file with one RayCluster. "
            "RAY_ADDRESS names a running cluster"
        ) from None


def _cluster_in(documents: list[Any]) -> dict[str, Any]:
    """Returns the only document, a Ray cluster YAML, or the YAML of the only KubeRay cluster.

    Raises ValueError if no cluster or several clusters are found.
    """
    clusters = [each["spec"] for each in documents if each.get("kind") == "RayCluster"]
    if len(clusters) == 1:
        return _of_kuberay(clusters[0])
    if clusters or len(documents) != 1:
        raise ValueError(f"{len(clusters)} clusters in {len(documents)} documents")
    return dict(documents[0])


def _of_kuberay(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns a RayCluster's spec as a Ray cluster YAML, with the sizes that its autoscaler counts.

    A size is the group's `resources`, else in `rayStartParams`, else of its first container.
    """
    kinds: dict[str, dict[str, Any]] = {HEAD_GROUP: {"resources": _pod_size(spec["headGroupSpec"])}}
    for group in spec.get("workerGroupSpecs") or ():
        most = group.get("maxReplicas")
        pods = (KUBERAY_MOST if most is None else most) * (group.get("numOfHosts") or 1)
        kinds[group["groupName"]] = {"resources": _pod_size(group), "max_workers": pods}
    return {"available_node_types": kinds, "head_node_type": HEAD_GROUP}


def _pod_size(group: dict[str, Any]) -> dict[str, float]:
    own, params = group.get("resources") or {}, group.get("rayStartParams") or {}
    container = group["template"]["spec"]["containers"][0].get("resources") or {}
    asked = {**(container.get("requests") or {}), **(container.get("limits") or {})}
    cards = max((_quantity(n) for name, n in asked.items() if name.endswith("gpu")), default=0)
    cpus = own.get("CPU", params.get("num-cpus", asked.get("cpu")))
    gpus = own.get("GPU", params.get("num-gpus", cards))
    if cpus is None:
        raise ValueError("a group has no number of CPUs: set num-cpus or the container's limit")
    return {"CPU": _quantity(cpus), "GPU": _quantity(gpus)}


def _quantity(given: str | float) -> int:
    """Returns a quantity of Kubernetes, such as "500m" for a half, as the next larger integer."""
    text = str(given)
    return math.ceil(float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1))


def _scaling_view(where: str, raw: dict[str, Any]) -> ClusterView:
    most, kinds, heads = raw.get("max_workers"), [], 0
    for name, kind in raw["available_node_types"].items():
        head = name == raw.get("head_node_type")
        limits = [n for n in (kind.get("max_workers"), most) if n is not None]
        count = 1 if head else min(limits, default=None)
        cpus, gpus = _size(kind.get("resources") or {})
        if cpus == ANY_SIZE and count:
            count = None  # the number of trials at a time is then unknown as well
        kinds.append(NodeKind(name, cpus, gpus, count))
        heads += bool(head and cpus)
    return ClusterView(where, tuple(kinds), None if most is None else most + heads)


def _fixed_kind(raw: dict[str, Any]) -> NodeKind:
    """Returns the workers of Ray's `local` provider. Its YAML has addresses but no sizes.

    Ray ignores the section `metadata`, so `metadata.worker` may hold the resources of a worker.
    """
    if (size := raw.get("metadata", {}).get("worker")) is None:
        return NodeKind("a machine of worker_ips", ANY_SIZE, ANY_SIZE, None)
    return NodeKind("worker", *_size({"CPU": 0, **size}), len(raw["provider"]["worker_ips"]))


def _size(resources: dict[str, Any]) -> tuple[float, float]:
    """Returns the CPUs and GPUs of a node type.

    Without CPUs the size is unknown. On AWS Ray takes it from the type of the machine.
    """
    unknown = ANY_SIZE if "CPU" not in resources else 0
    return float(resources.get("CPU", unknown)), float(resources.get("GPU", unknown))
