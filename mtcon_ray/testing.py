"""The contract of a method, for tests of methods in and outside of this package.

A plugin's author derives a class from `MethodContract`, which pytest collects. The tests of this
package call the same checks for each method. All trainings take seconds, on synthetic images of
16 x 16 pixels.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.errors import SpecError
from mtcon_ray.export.trained_network import load_network
from mtcon_ray.methods import METHODS
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.training.distributed import ALONE
from mtcon_ray.training.step import backward, chunk_seeds, compute_gradients, encode, gather, update
from mtcon_ray.training.testing_graph import check_step_graph
from mtcon_ray.training.trainer import Trainer

Tasks = tuple[str, ...]
# A method is tested with the first combination of tasks and encoder accepted by its spec.
TASKS: tuple[Tasks, ...] = (("shape", "colour"), ("attributes",), ("shape",))
ENCODERS: tuple[dict[str, Any], ...] = (
    {"name": "small", "width": 4},
    {"name": "vit", "patch": 4, "width": 16, "depth": 3, "heads": 2},
)
BATCH_SIZE = 16
STEPS = 20


class MethodContract:
    """Tests of a method. `method` is its section of a spec."""

    method: ClassVar[Mapping[str, Any]]
    # Assumptions of the tests: whether the loss is the same for another order of the items, and a
    # learning rate at which the loss falls.
    any_order: ClassVar[bool] = True
    lr: ClassVar[float] = 0.05

    def test_spec_is_closed_and_described(self) -> None:
        """An unknown key is an error, and each field has a description."""
        check_spec(spec_of(self.method))

    def test_losses_are_finite(self, tmp_path: Path) -> None:
        """Losses are finite, also without the labels of a task."""
        check_losses(start(spec_of(self.method), tmp_path, tmp_path / "run"))

    def test_order_of_items(self, tmp_path: Path) -> None:
        """The loss does not depend on the order of items, unless `any_order` is False."""
        if self.any_order:
            check_order(start(spec_of(self.method), tmp_path, tmp_path / "run"))

    def test_chunks(self, tmp_path: Path) -> None:
        """Chunks give the gradient of the whole batch."""
        check_chunks(start(spec_of(self.method), tmp_path, tmp_path / "run"))

    def test_step_graph(self, tmp_path: Path) -> None:
        """A step as a CUDA graph (`train.compile: graphs`) has the same result as in Python."""
        spec = spec_of(self.method)
        plain, graph = (start(spec, tmp_path, tmp_path / name) for name in ("plain", "graph"))
        check_step_graph(plain, graph)

    def test_loss_falls(self, tmp_path: Path) -> None:
        """The loss falls when a batch is repeated."""
        check_falling(start(spec_of(self.method), tmp_path, tmp_path / "run"), self.lr)

    def test_batch_norm_is_declared(self, tmp_path: Path) -> None:
        """`has_batch_norm` of the spec is true of the network."""
        check_batch_norm(start(spec_of(self.method), tmp_path, tmp_path / "run"))

    def test_resumed_training(self, tmp_path: Path) -> None:
        """An interrupted and resumed training ends with the same bits as without interruption."""
        check_resume(spec_of(self.method, steps=5), tmp_path, tmp_path / "run")


def spec_of(
    method: Mapping[str, Any], *, steps: int = 10, tasks: tuple[Tasks, ...] = TASKS
) -> RunSpec:
    """Returns the spec of two epochs of `steps` steps.

    Raises AssertionError with all refusals if the method accepts no combination of `tasks` and
    ENCODERS.
    """
    # The training split has 70 % of the items.
    data = {"kind": "synthetic", "num_items": 23 * steps, "held_out": []}
    refusals = []
    for chosen, encoder in product(tasks, ENCODERS):
        try:
            return parse_spec(
                {
                    "name": "contract",
                    "data": {**data, "tasks": chosen},
                    "views": {"size": 16},
                    "model": {"encoder": encoder, "head_dim": 8},
                    "method": dict(method),
                    "train": {
                        "epochs": 2, "lr": 0.05, "precision": "float32", "batch_size": BATCH_SIZE,
                    },
                    "evaluate": {"every": 2, "bootstrap": 20},
                }
            )  # fmt: skip
        except SpecError as error:
            refusals.append(str(error))
    raise AssertionError(refusals)


def start(spec: RunSpec, store: Path, folder: Path, **options: Any) -> Trainer:
    """Returns a new or resumed training on the CPU. `store` caches its images."""
    data = open_dataset(spec.data, view_size=spec.views.size, store=store)
    run = Trainer(spec, data, folder, device=torch.device("cpu"), **options)
    assert run.resume() is None
    return run


def rows_of(run: Trainer, step: int = 0) -> tuple[dict[str, Tensor], Batch]:
    """Returns every head's rows of a batch, as leaves with gradients, and the batch."""
    x_NCHW, batch = run._batches(step)
    torch.manual_seed(0)
    z_by_head = gather(encode(run.learner, x_NCHW), ALONE, batch.num_items)
    return {head: z.detach().requires_grad_() for head, z in z_by_head.items()}, batch


def check_spec(spec: RunSpec) -> None:
    """Checks a round trip of the section, its refusal of unknown keys, and its descriptions."""
    method = spec.method
    kind = METHODS[method.name].Spec
    assert kind.model_validate_json(method.model_dump_json()) == method
    assert kind.model_config.get("extra") == "forbid", "an unknown key must be refused"
    fields = {name: field for name, field in kind.model_fields.items() if name != "name"}
    assert [name for name, field in fields.items() if not field.description] == []


def check_losses(run: Trainer) -> None:
    """Checks heads, losses and gradients of a batch, also without the labels of a task."""
    method = run.learner.method
    z_by_head, whole = rows_of(run)
    assert tuple(z_by_head) == method.heads
    assert len(set(method.heads)) == len(method.heads) > 0
    assert all(s == 1 for s in method.weighting.sigma_by_task().values())
    assert all(z.shape[0] == whole.num_items for z in z_by_head.values())
    for batch in (whole, *(_without(whole, task) for task in run.spec.data.tasks)):
        method.zero_grad()
        losses = method.check(method(z_by_head, batch)).losses
        objective, weights = method.weighting(losses)
        objective.backward()
        assert objective.isfinite()
        assert tuple(weights) == tuple(losses)
        learned = [*z_by_head.values(), *method.parameters()]
        assert all(x.grad is None or x.grad.isfinite().all() for x in learned)
    assert any(z.grad is not None and (z.grad != 0).any() for z in z_by_head.values())


def check_order(run: Trainer) -> None:
    """Checks the equality of losses for another order of a batch's items."""
    z_by_head, batch = rows_of(run)
    order = torch.randperm(batch.num_items, generator=torch.Generator().manual_seed(0))
    condition = None if batch.condition is None else batch.condition[order]
    moved = replace(_changed(batch, lambda _, y: y[order]), condition=condition)
    losses = run.learner.method(z_by_head, batch).losses
    again = run.learner.method({h: z[order] for h, z in z_by_head.items()}, moved).losses
    torch.testing.assert_close(dict(again), dict(losses), rtol=1e-5, atol=1e-5)


def check_falling(run: Trainer, lr: float) -> None:
    """Checks that the loss of a repeated batch falls in STEPS steps.

    The last loss is below the first or, as a queue has to fill, the fifth.
    """
    x_NCHW, batch = run._batches(0)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(0)
        done = update(run.learner, x_NCHW, batch, lr=lr, step=step, num_steps=STEPS)
        losses.append(done.objective.item())
    assert losses[-1] < losses[4] or losses[-1] < losses[0], losses


def check_chunks(run: Trainer) -> None:
    """Compares the gradient of chunks with the gradient of a graph through all chunks.

    Chunks of six, six and four examples, in float64: the order of sums hardly matters.
    """
    learner = run.learner
    for module in (learner.network, learner.method, learner.teacher):
        if module is not None:
            module.double()
    made, batch = run._batches.chunks(0, 6)
    views = [make().double() for make in made]
    torch.manual_seed(0)
    compute_gradients(learner, [partial(torch.clone, x_NCHW) for x_NCHW in views], batch)
    found = _gradients(run)
    learner.optimizer.zero_grad()
    torch.manual_seed(0)
    parts = []
    for seed, x_NCHW in zip(chunk_seeds(3), views, strict=True):
        torch.manual_seed(seed)
        parts.append(encode(learner, x_NCHW))
    whole = {head: torch.cat([z_by_head[head] for z_by_head in parts]) for head in parts[0]}
    backward(learner, whole, batch)
    assert found
    torch.testing.assert_close(found, _gradients(run), rtol=1e-9, atol=1e-11)


def check_batch_norm(run: Trainer) -> None:
    """Checks the spec's declaration of batch norm against the network.

    `plan` can therefore refuse a spec with chunks and global batch norm, without a network.
    """
    norms = {name for name, m in run.network.named_modules() if isinstance(m, _BatchNorm)}
    of_encoder = {name for name in norms if name.startswith("encoder.")}
    assert run.spec.model.encoder.has_batch_norm == bool(of_encoder)
    assert run.spec.method.has_batch_norm == bool(norms - of_encoder)


def check_resume(spec: RunSpec, store: Path, folder: Path) -> None:
    """Compares a training stopped in its second epoch bit by bit with an uncut training.

    A new object resumes it from the checkpoint. `spec` must have epochs of five steps.
    """
    run = start(spec, store, folder / "uncut")
    uncut = [progress.metrics for progress in run]
    steps = iter(range(10**6))
    first = start(spec, store, folder / "cut", should_stop=lambda: next(steps) >= 7)
    list(first)
    assert first.interrupted
    second = start(spec, store, folder / "cut")
    assert second.step == 7
    cut = [progress.metrics for progress in second]
    for metrics in (cut[-1], uncut[-1]):
        del metrics["images_per_second"]
    assert cut[-1] == uncut[-1]
    for one, other in ((run.network, second.network), (run.learner.method, second.learner.method)):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
    found, network = load_network(folder / "cut" / "model.pt")
    assert found == run.spec
    assert network.names == run.network.names


def _without(batch: Batch, task: str) -> Batch:
    """Returns the batch with all labels of a task unknown."""

    def unknown(name: str, y: Tensor) -> Tensor:
        missing = UNKNOWN_BIT if name in batch.label_sets else MISSING
        return torch.full_like(y, missing) if name == task else y

    return _changed(batch, unknown)


def _changed(batch: Batch, change: Callable[[str, Tensor], Tensor]) -> Batch:
    """Returns the batch with a change of each task's labels, given the task and its labels."""
    both = batch.labels, batch.label_sets
    labels, label_sets = ({t: change(t, y) for t, y in column.items()} for column in both)
    return replace(batch, labels=labels, label_sets=label_sets)


def _gradients(run: Trainer) -> dict[str, Tensor]:
    named = [*run.network.named_parameters(), *run.learner.method.named_parameters()]
    return {name: p.grad for name, p in named if p.grad is not None}
