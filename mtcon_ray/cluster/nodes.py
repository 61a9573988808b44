"""Other nodes of the cluster before a sweep starts: their check, and their help with images."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mtcon_ray.base.paths import stored_url
from mtcon_ray.base.root_files import remove, touch
from mtcon_ray.cluster.connection import visiting
from mtcon_ray.cluster.environment import cluster_address
from mtcon_ray.cluster.jobs import versions
from mtcon_ray.data import decoding
from mtcon_ray.data.decoding import Decoded, Decoder
from mtcon_ray.data.image_files import ImageFiles
from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import ResourceError, StorageError

# Without these versions in common, no process of a trial works.
MUST_BE_EQUAL = {"python", "ray", "mtcon-ray"}
# The driver writes all images. It has no time for more.
MOST_DECODERS = 48
AT_ONCE = 2  # for each core: the next images are decoded while the last ones are sent
# A core that has not answered after this time is busy or too slow, or its node is lost.
DECODING_SECONDS = 60.0
POLL_SECONDS = 0.5


def check_nodes(folder: Path) -> list[str]:
    """Returns a line for each node on which other versions are installed than here.

    `folder` is the folder of the sweep. Raises ResourceError naming the nodes that cannot see the
    root or use its object store, or on which Python, Ray or mtcon-ray is missing or of another
    version.
    """
    alive, root, url = [n for n in ray.nodes() if n["Alive"]], folder.parents[1], stored_url(folder)
    if len(alive) < 2 and not url:
        return []
    nodes = [n["NodeManagerAddress"] for n in alive]  # several nodes of a host have one address
    marker = root / f".seen-by-{os.getpid()}"
    own = root.resolve() / marker.name  # the root may be a link
    touch(own)
    try:
        task = ray.remote(num_cpus=0)(look)
        on_each = [NodeAffinitySchedulingStrategy(n["NodeID"], soft=False) for n in alive]
        asked = [task.options(scheduling_strategy=o).remote(url or str(marker)) for o in on_each]
        answers = list(zip(nodes, map(_answer, asked), strict=True))
    finally:
        remove(own)
    if blind := [f"{node} ({problem})" for node, (problem, _) in answers if problem]:
        way_out = "name a folder on a file system that all nodes share with --root or storage.root"
        if url:
            way_out = "give each node a role or AWS's own files with the right to write"
        raise ResourceError(
            f"all nodes must reach the root, got {url or root}, which fails on "
            f"{'; '.join(blind)}; {way_out}"
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


def look(marker: str) -> tuple[str, dict[str, str]]:
    """Returns the problem of this node with the root, and the versions installed here.

    `marker` is a file on all nodes, or the URL of a folder to write to.
    """
    problem = ""
    if "://" in marker:
        objects, name = Objects(marker), f"nodes/{uuid4().hex}"
        try:
            objects.write(name, b"")
            objects.delete([name])
        except StorageError as error:
            problem = str(error)
    elif not os.path.exists(marker):
        problem = "it is not there"
    return problem, versions()


def _answer(call: "ray.ObjectRef[tuple[str, dict[str, str]]]") -> tuple[str, dict[str, str]]:
    """Returns a node's problem with the root, and its versions that differ from those here."""
    try:
        problem, there = ray.get(call)
    except (RayTaskError, ImportError) as error:  # another version of this package, or none
        return "", {"mtcon-ray": f"that does not work: {str(error).strip().splitlines()[-1]}"}
    except RayError:  # the node was lost meanwhile
        return "", {}
    return problem, dict(sorted(there.items() - versions().items()))


@contextmanager
def lent_decoders(on_phase: Callable[[str], None], stopped: Event) -> Iterator[list[Decoder]]:
    """Yields decoders for free cores of other nodes, MOST_DECODERS at most.

    A node reads the files itself, and the driver writes the images. A decoder raises
    DecoderLostError if its node sees other files than the driver, or does not answer in time, and
    once `stopped` is set. Raises MtconError if the cluster of RAY_ADDRESS cannot be reached.
    """
    if not (cluster_address() or ray.is_initialized()):
        yield []
        return
    with visiting(on_phase):
        own = ray.get_runtime_context().get_node_id()
        cpus = {n["NodeID"]: int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]}
        # Ray does not tell on which nodes. All cores of the driver's node may be among them.
        free = int(ray.available_resources().get("CPU", 0)) - cpus.pop(own, 0)
        cores = ([node] * AT_ONCE * number for node, number in cpus.items())
        turns = filter(None, chain.from_iterable(zip_longest(*cores)))  # a core of each node first
        # A single function: Ray would serve tasks of several ones in an unfair order.
        task = ray.remote(num_cpus=1, max_retries=0)(decoding.decode_there)
        most = max(0, min(MOST_DECODERS, AT_ONCE * free))
        yield [partial(_decode_on, task, node, stopped) for node in islice(turns, most)]


def _decode_on(
    task: Any, node: str, stopped: Event, files: ImageFiles, names: Sequence[str], *how: Any
) -> Decoded:
    on_it = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
    with suppress(RayError, ImportError):
        call = on_it.remote(str(files.root), names, decoding.stamp(files, names), *how)
        deadline = monotonic() + DECODING_SECONDS
        while monotonic() < deadline and not stopped.is_set():
            if ray.wait([call], timeout=POLL_SECONDS)[0]:
                answer: Decoded = ray.get(call)
                # A node may lack rights or a codec.
                return decoding.decode_files(files, names, *how) if answer[1] else answer
        ray.cancel(call)
    raise decoding.DecoderLostError
