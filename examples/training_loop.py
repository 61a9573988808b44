"""A custom training loop: views and losses of mtcon_ray, without a spec, Ray or MLflow."""

import torch

from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.views import draw_parameters, make_views
from mtcon_ray.losses import mtcon
from mtcon_ray.models.encoders import ENCODERS
from mtcon_ray.models.network import Network, ProjectionHead
from mtcon_ray.spec.data.own import SyntheticSpec
from mtcon_ray.spec.encoders import SmallSpec
from mtcon_ray.spec.views import ViewsSpec

TASKS = ("shape", "colour")
STEPS, BATCH = 100, 32
# Strong colour jitter and grey images would erase the information for the colour task.
VIEWS = ViewsSpec(size=24, hue=0.02, saturation=0.2, grayscale=0.0, crop_scale=(0.5, 1.0))


def train() -> list[float]:
    """Trains an encoder with a head per task on synthetic images and returns the loss per step."""
    torch.manual_seed(0)
    data = SOURCES["synthetic"](SyntheticSpec(tasks=TASKS, num_items=200))  # images made here
    images = torch.from_numpy(data.decode(range(200), 32)[0])  # uint8 [200, 32, 32, 3]
    columns = data.read_labels().labels
    labels = {task: torch.from_numpy(columns[task]) for task in TASKS}  # int64 [200], -1: unknown

    encoder = ENCODERS["small"](SmallSpec(width=8))
    heads = {task: ProjectionHead(encoder.width, dim=32) for task in TASKS}  # rows of length 1
    network = Network(encoder, heads)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(STEPS):
        rows = torch.randperm(len(images), generator=generator)[:BATCH]
        drawn = draw_parameters(BATCH * VIEWS.num_views, images.shape[1], VIEWS, generator)
        x = make_views(images[rows], drawn, VIEWS)  # [BATCH * V, 3, 24, 24], an item's views adjoin
        z = {task: z_ND.unflatten(0, (BATCH, -1)) for task, z_ND in network(x).items()}
        loss = mtcon(z, {task: y[rows] for task, y in labels.items()}, temperature=0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train(), 1):
        print(f"step {step}: {loss:.3f} nats")
