"""Memory of three tasks' losses of 16,384 images in two views, forward and backward once.

A materialised similarity matrix of 32,768 views would take 4 GiB per task and pass. Memory is the
peak rise of the process's resident memory. It includes the embeddings' gradients but not the
embeddings.
"""

from time import perf_counter

from benchmarks.losses import TEMPERATURE, drawn
from benchmarks.table import markdown
from benchmarks.timing import peak_bytes
from mtcon_ray.losses import mtcon

HEADER = ("3 tasks, forward and backward, width 128", "seconds", "peak memory, MiB (aim: 4,096)")


def measure(num_images: int = 16_384) -> str:
    """Returns the table of a single run, since the memory does not vary. Takes minutes."""
    z_by_task, labels = drawn(num_images)

    def way() -> None:
        loss = mtcon(z_by_task, labels, temperature=TEMPERATURE)
        loss.backward()

    started = perf_counter()
    peak = peak_bytes(way)
    seconds = perf_counter() - started
    assert all(z.grad is not None and bool(z.grad.isfinite().all()) for z in z_by_task.values())
    views = f"{num_images:,} images, {2 * num_images:,} views: mtcon"
    return markdown(HEADER, [(views, f"{seconds:.1f}", f"{peak / 2**20:,.0f}")])
