"""Device and resources of this process."""

import torch

from mtcon_ray.base.cpus import usable_cpus
from mtcon_ray.errors import ResourceError
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.spec.run_spec import RunSpec

# The name of a Ray of this machine alone, as `--cluster` takes it.
LOCAL = "local"


def choose_device(spec: RunSpec) -> torch.device:
    """Returns the device of a training in this process: the first GPU or the CPU.

    Raises ResourceError if the requested GPU is missing, or for a request of more than one worker
    or GPU.
    """
    least, _ = spec.resources.worker_range
    if least > 1 or spec.resources.gpus > 1:
        raise ResourceError(
            f"training without Ray must have one worker and at most one GPU, got {least} workers "
            f"of {spec.resources.gpus:g} GPUs; leave out --here, or lower both by --set"
        )
    if spec.resources.gpus and not torch.cuda.is_available():
        raise ResourceError(
            f"resources.gpus must be 0 on a machine on which torch finds no GPU, got "
            f"{spec.resources.gpus:g}; --set resources.gpus=0 trains on the CPU"
        )
    return torch.device("cuda", 0) if spec.resources.gpus else torch.device("cpu")


def this_machine() -> ClusterView:
    """Returns this machine as a cluster of a single node, as a local Ray would offer it."""
    node = NodeKind("this machine", float(usable_cpus()), float(torch.cuda.device_count()), 1)
    return ClusterView(LOCAL, (node,))
