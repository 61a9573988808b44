"""Three tasks' supervised contrastive losses, forward and backward, on the CPU.

The peers are SupContrast's loss as published (task by task, with the full [N, N] mask and
log-probabilities), pytorch-metric-learning's SupConLoss and lightly's NTXentLoss. The limit is the
matrix products alone: the similarities of all pairs, and the product for their gradient. An
implementation can be faster than this limit if it uses the symmetry of the similarities.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.table import markdown
from benchmarks.timing import interleaved, peak_bytes, ratio
from mtcon_ray.losses import mtcon, nt_xent

TASKS = {"category": 8, "gender": 4, "colour": 15}
TEMPERATURE = 0.1
WIDTH = 128
GRADIENT_ERROR = 1e-4  # relative, in float32
HEADER = ("forward and backward, 2 views, width 128", "ms", "ours is faster by", "peak memory, MiB")


def supcontrast_loss(z_BVD: Tensor, labels_B: Tensor) -> Tensor:
    """Returns SupCon's loss as in the authors' repository, HobbitLong/SupContrast.

    Repeats its single operations: anchors of all views, masks of all pairs, the guard for anchors
    without a positive, and the factor temperature / base temperature, which is 1 here.
    """
    B, V = z_BVD.shape[:2]
    rows_ND = torch.cat(torch.unbind(z_BVD, dim=1), dim=0)
    label_B1 = labels_B.contiguous().view(-1, 1)
    equal_NN = torch.eq(label_B1, label_B1.T).float()
    logits_NN = torch.div(torch.matmul(rows_ND, rows_ND.T), TEMPERATURE)
    greatest_N1, _ = torch.max(logits_NN, dim=1, keepdim=True)
    logits_NN = logits_NN - greatest_N1.detach()
    equal_NN = equal_NN.repeat(V, V)
    row_N1 = torch.arange(V * B, device=z_BVD.device).view(-1, 1)
    others_NN = torch.scatter(torch.ones_like(equal_NN), 1, row_N1, 0)
    equal_NN = equal_NN * others_NN
    sum_N1 = (torch.exp(logits_NN) * others_NN).sum(1, keepdim=True)
    log_probability_NN = logits_NN - torch.log(sum_N1)
    count_N = equal_NN.sum(1)
    count_N = torch.where(count_N < 1e-6, 1, count_N)
    mean_N = (equal_NN * log_probability_NN).sum(1) / count_N
    loss_N = -(TEMPERATURE / TEMPERATURE) * mean_N
    return loss_N.view(V, B).mean()


def matrix_products(z_ND: Tensor) -> None:
    """Computes the similarities of all pairs and their product with the rows, [N, N] @ [N, D]."""
    similarity_NN = z_ND @ z_ND.T
    similarity_NN @ z_ND


def measure(small: int = 64, large: int = 2048, rounds: int = 15) -> str:
    """Returns the table. Losses and gradients are compared before anything is timed."""
    rows: list[tuple[str, ...]] = []
    for num_items, turns, repeats in ((small, rounds, 30), (large, max(1, rounds // 3), 1)):
        rows += _three_tasks(num_items, turns, repeats)
        rows += _one_space(num_items, turns, repeats)
    return markdown(HEADER, rows)


def _three_tasks(num_items: int, rounds: int, repeats: int) -> list[tuple[str, ...]]:
    from pytorch_metric_learning.losses import SupConLoss

    z_by_task, labels = drawn(num_items)
    published = SupConLoss(temperature=TEMPERATURE)

    def metric_learning() -> Tensor:
        losses = [published(_rows(z_by_task[t]), labels[t].repeat(2)) for t in TASKS]
        return torch.stack(losses).sum()

    def products() -> None:
        for z_BVD in z_by_task.values():
            matrix_products(z_BVD.detach().flatten(0, 1))

    ours, supcontrast = ours_and_supcontrast(z_by_task, labels)
    ways = {"SupContrast": supcontrast, "pytorch-metric-learning": metric_learning}
    leaves = list(z_by_task.values())
    title = f"3 tasks, {num_items:,} images"
    return _rows_of(title, "mtcon", ours, ways, leaves, rounds, repeats, products)


def drawn(num_items: int, width: int = WIDTH) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns random unit rows [B, 2, width] with requires_grad, and labels [B], by task."""
    generator = torch.Generator().manual_seed(0)
    z_by_task, labels = {}, {}
    for task, num_classes in TASKS.items():
        z_BVD = torch.randn(num_items, 2, width, generator=generator)
        z_by_task[task] = F.normalize(z_BVD, dim=2).requires_grad_()
        labels[task] = torch.randint(0, num_classes, (num_items,), generator=generator)
    return z_by_task, labels


def ours_and_supcontrast(
    z_by_task: dict[str, Tensor], labels: dict[str, Tensor]
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Returns functions for the sum of all tasks' losses: ours and SupContrast's."""

    def ours() -> Tensor:
        loss = mtcon(z_by_task, labels, temperature=TEMPERATURE)
        return loss

    def supcontrast() -> Tensor:
        return torch.stack([supcontrast_loss(z_by_task[t], labels[t]) for t in TASKS]).sum()

    return ours, supcontrast


def _one_space(num_items: int, rounds: int, repeats: int) -> list[tuple[str, ...]]:
    from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss

    z_BVD = torch.randn(num_items, 2, WIDTH, generator=torch.Generator().manual_seed(0))
    z_BVD = F.normalize(z_BVD, dim=2).requires_grad_()
    metric_learning = SelfSupervisedLoss(NTXentLoss(temperature=TEMPERATURE))
    ways: dict[str, Callable[[], Tensor]] = {
        "pytorch-metric-learning": lambda: metric_learning(z_BVD[:, 0], z_BVD[:, 1])
    }
    try:
        from lightly.loss import NTXentLoss as LightlyLoss
    except ImportError:
        print("lightly is not installed: its rows are left out", flush=True)
    else:
        lightly = LightlyLoss(temperature=TEMPERATURE)
        ways["lightly"] = lambda: lightly(z_BVD[:, 0], z_BVD[:, 1])
    return _rows_of(
        f"SimCLR, {num_items:,} images",
        "nt_xent",
        lambda: nt_xent(z_BVD, temperature=TEMPERATURE),
        ways,
        [z_BVD],
        rounds,
        repeats,
        lambda: matrix_products(z_BVD.detach().flatten(0, 1)),
    )


def _rows_of(
    title: str,
    name: str,
    ours: Callable[[], Tensor],
    peers: dict[str, Callable[[], Tensor]],
    leaves: list[Tensor],
    rounds: int,
    repeats: int,
    products: Callable[[], None],
) -> list[tuple[str, ...]]:
    too_large = {peer for peer, loss in peers.items() if not _fits_and_is_equal(ours, loss, leaves)}
    peers = {peer: loss for peer, loss in peers.items() if peer not in too_large}
    ways = {name: trained(ours, leaves, repeats)}
    ways |= {peer: trained(loss, leaves, repeats) for peer, loss in peers.items()}
    ways["limit: matrix products"] = _repeated(products, repeats)
    memory = {way: peak_bytes(run) for way, run in ways.items()}
    times = interleaved(ways, rounds)
    rows: list[tuple[str, ...]] = [
        (
            f"{title}: {way}",
            f"{1e3 * each.median / repeats:.2f}",
            "1" if way == name else str(ratio(each, times[name])),
            f"{memory[way] / 2**20:.0f}" if repeats == 1 else "",
        )
        for way, each in times.items()
    ]
    return rows + [(f"{title}: {peer}", "out of memory", "", "") for peer in sorted(too_large)]


def _fits_and_is_equal(
    ours: Callable[[], Tensor], peer: Callable[[], Tensor], leaves: list[Tensor]
) -> bool:
    """Returns False if the peer runs out of memory.

    Raises AssertionError if the peer computes another loss or other gradients.
    """
    try:
        check_equal(ours, peer, leaves)
    except RuntimeError as error:
        if "can't allocate memory" in str(error):
            return False
        raise
    return True


def trained(loss: Callable[[], Tensor], leaves: list[Tensor], repeats: int) -> Callable[[], object]:
    """Returns a function for `repeats` forward and backward passes of the loss."""
    return lambda: [torch.autograd.grad(loss(), leaves) for _ in range(repeats)]


def _repeated(way: Callable[[], None], repeats: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(repeats):
            way()

    return run


def check_equal(ours: Callable[[], Tensor], peer: Callable[[], Tensor], at: list[Tensor]) -> None:
    """Checks the peer's loss and gradients against ours; raises AssertionError if they differ.

    Compares the gradients' components tangent to the sphere. Some peers normalise the rows again,
    which removes the radial component.
    """
    one, other = ours(), peer()
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    pairs = zip(torch.autograd.grad(one, at), torch.autograd.grad(other, at), at, strict=True)
    for mine, theirs, z_BVD in pairs:
        found, expected = _along_sphere(mine, z_BVD), _along_sphere(theirs, z_BVD)
        # A norm over all entries, because single entries may be pure rounding error.
        error = ((found - expected).norm() / expected.norm()).item()
        assert error < GRADIENT_ERROR, f"gradients differ by {error:.1e} of their length"


def _along_sphere(gradient_BVD: Tensor, z_BVD: Tensor) -> Tensor:
    return gradient_BVD - (gradient_BVD * z_BVD).sum(dim=2, keepdim=True) * z_BVD


def _rows(z_BVD: Tensor) -> Tensor:
    return torch.cat(z_BVD.unbind(1))
