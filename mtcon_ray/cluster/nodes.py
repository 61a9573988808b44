"""Check of all nodes of the cluster before a sweep starts: the shared root, and their versions."""

import os
from pathlib import Path

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mtcon_ray.base.root_files import remove, touch
from mtcon_ray.cluster.job_package import versions
from mtcon_ray.errors import ResourceError

# Without these versions in common, no process of a trial works.
MUST_BE_EQUAL = {"python", "ray", "mtcon-ray"}


def check_nodes(root: Path) -> list[str]:
    """Returns a line for each node on which other versions are installed than here.

    Raises ResourceError naming the nodes that cannot see this node's `root`, or on which Python,
    Ray or mtcon-ray is missing or of another version.
    """
    alive = [n for n in ray.nodes() if n["Alive"]]
    if len(alive) < 2:
        return []
    nodes = [n["NodeManagerAddress"] for n in alive]  # several nodes of a host have one address
    marker = root / f".seen-by-{os.getpid()}"
    own = root.resolve() / marker.name  # the root may be a link
    touch(own)
    try:
        task = ray.remote(num_cpus=0)(look)
        on_each = [NodeAffinitySchedulingStrategy(n["NodeID"], soft=False) for n in alive]
        asked = [task.options(scheduling_strategy=one).remote(str(marker)) for one in on_each]
        answers = list(zip(nodes, map(_answer, asked), strict=True))
    finally:
        remove(own)
    if blind := [node for node, (sees, _) in answers if not sees]:
        raise ResourceError(
            f"the root must be on a file system that all nodes share, got {root}, which is not "
            f"seen by {', '.join(blind)}; name a shared folder with --root or storage.root"
        )
    here = versions()
    lines = [
        f"{node} has {', '.join(f'{n} {v} (here {here.get(n)})' for n, v in wrong.items())}"
        for node, (_, wrong) in answers
        if wrong
    ]
    if any(MUST_BE_EQUAL & wrong.keys() for _, (_, wrong) in answers):
        raise ResourceError(
            f"all nodes must have the same Python, Ray and mtcon-ray: {'; '.join(lines)}; install "
            "one constraints.txt and one Python on all"
        )
    return lines


def look(marker: str) -> tuple[bool, dict[str, str]]:
    """Returns whether a file exists on this node, and the versions installed here."""
    return os.path.exists(marker), versions()


def _answer(call: "ray.ObjectRef[tuple[bool, dict[str, str]]]") -> tuple[bool, dict[str, str]]:
    """Returns whether a node sees the file, and its versions that differ from the versions here."""
    try:
        sees, there = ray.get(call)
    except (RayTaskError, ImportError) as error:  # another version of this package, or none
        return True, {"mtcon-ray": f"that does not work: {str(error).strip().splitlines()[-1]}"}
    except RayError:  # the node was lost meanwhile
        return True, {}
    return sees, dict(sorted(there.items() - versions().items()))
