"""Two augmented views of every image at 112 pixels on one GPU, against all cores of its host.

The images are in GPU memory, as in training. The peers are those of `views`: a worker per core,
64 images at a time, and views that stay in the host's memory.
"""

import torch

from benchmarks.machine import NO_GPU
from benchmarks.table import markdown
from benchmarks.views import drawn_photographs, header, peers, rows_of
from mtcon_ray.data.views import ViewsSpec

SIZE = 112
BATCHES = (64, 512)


def measure(num_images: int = 4096, rounds: int = 5, device: torch.device | None = None) -> str:
    """Returns the table for both batch sizes, without and with blur.

    Without a GPU, returns one that says that nothing was run.
    """
    if device is None and not torch.cuda.is_available():
        return markdown(header(SIZE), [(f"on one GPU: {NO_GPU}", "", "")])
    device = device or torch.device("cuda")
    images = drawn_photographs(num_images, round(1.25 * SIZE))
    rows = []
    for batch in BATCHES:
        for title, blur in (("", 0.0), (", half of them blurred", 0.5)):
            spec = ViewsSpec(size=SIZE, blur=blur)
            name = f", {batch} images at a time{title}"
            rows += rows_of(name, images, spec, peers(images, spec), batch, device, rounds)
    return markdown(header(SIZE), rows)
