"""The networks of a spec, built to count their parameters and to check weights and plugins."""

import inspect
import traceback
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from itertools import product
from pathlib import Path
from pickle import UnpicklingError

import torch

from mtcon_ray.base.metrics import HEAD
from mtcon_ray.data.batch import Batch
from mtcon_ray.data.views import with_extra
from mtcon_ray.errors import MtconError, SpecError
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import Network, build_network
from mtcon_ray.spec.encoders import WeightsSpec
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training.distributed import ALONE
from mtcon_ray.training.optimizer import lr_at
from mtcon_ray.training.step import make_learner, update

NUM_ITEMS = 2


def count_networks(
    spec: RunSpec, built: list[RunSpec], sizes: Mapping[str, int], store: Path, *, extremes: bool
) -> list[tuple[int, int, int]]:
    """Returns three counts of each network, the least and the greatest among them.

    These are the parameters of encoder and heads, the parameters with a gradient, which include the
    method's own, and the values of a view's rows in all heads with a teacher's keys. The last is 0
    with a single worker, or if a plugin's head does not run on the meta device.

    `built` are the specs of the networks to build, at least one. Building checks that the encoder's
    weights fit. With `extremes` the networks with the least and greatest searched numbers are
    counted instead. Raises CheckpointError if weights do not fit, SpecError if an encoder refuses
    the views or a head of the objective is missing.
    """

    def count(one: RunSpec) -> tuple[int, int, int]:
        with torch.device("meta"):  # allocates no memory and computes no initial weights
            method = METHODS[one.method.name](one.method, one.problem(sizes))
            network = build_network(one.model, method.make_network, one.seed, store=store)
            if one.model.encoder.is_checked_by_building:
                network.encoder.check_images(one.views.size)
            width = 0
            if spec.resources.worker_range[1] > 1:  # the first operation imports torch._dynamo
                # Without the encoder and autocast, which may not run on the meta device.
                with suppress(RuntimeError):
                    h_ND = torch.empty(NUM_ITEMS, network.encoder.width)
                    width = sum(head(h_ND).shape[1] for head in network.heads) + network.num_errors
        _check_heads(spec, network)
        own = list(network.parameters())
        trained = sum(p.numel() for p in [*own, *method.parameters()] if p.requires_grad)
        return sum(p.numel() for p in own), trained, width if method.momentum is None else 2 * width

    counts = [count(one) for one in built]
    space = {p: d.extremes for p, d in spec.search.space.items() if p.startswith("model.")}
    numbers = {path: [n for n in ends if isinstance(n, int)] for path, ends in space.items()}
    found = []
    for end in (min, max) if extremes and any(numbers.values()) else ():
        # Networks grow with each number. With null, a network may be smaller or larger.
        ends = {p: [end(n), *([None] if None in space[p] else [])] for p, n in numbers.items() if n}
        for values in product(*ends.values()):
            # Values may be refused together. No trial has them then.
            with suppress(SpecError):
                chosen = dict(zip(ends, values, strict=True))
                found.append(count(with_values(spec, {**chosen, "search": {}})))
    return found or counts[:1]


def _check_heads(spec: RunSpec, network: Network) -> None:
    """Raises SpecError unless the network has each head in which the objective is measured."""
    labels, names = spec.labels, () if network.probed else network.names
    for metric, task in labels.shares:
        if metric.startswith(HEAD) and task not in names:
            own = [f"{metric}/{n}" for n in names if labels.kinds.get(n) == "classes"]
            raise SpecError(
                f"search.objective {metric} must be of tasks with a head, got {task!r}, which has "
                f"none of its own in method {spec.method.name}; name "
                f"{' or '.join([*own, metric.removeprefix(f'{HEAD}/')])}"
            )


def try_plugins(spec: RunSpec, sizes: Mapping[str, int]) -> None:
    """Makes a training step on the CPU, with random images, labels and weights.

    Raises SpecError with the name of a plugin that raises an error or returns the wrong thing.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(spec.seed)
            _step(spec, sizes)
    except MtconError:
        raise
    except Exception as error:  # a plugin may raise an error of any type
        files = {name: inspect.getfile(type(s)) for name, s in spec.used_plugins.items()}
        frames = traceback.extract_tb(error.__traceback__)
        last = next((f for f in reversed(frames) if f.filename in files.values()), frames[-1])
        names = [name for name, file in files.items() if file == last.filename] or files
        raise SpecError(
            f"{' or '.join(names)} failed in a step on {NUM_ITEMS} random images, in line "
            f"{last.lineno} of {last.filename}: {type(error).__name__}: {error}"
        ) from error


def _step(spec: RunSpec, sizes: Mapping[str, int]) -> None:
    encoder, size = spec.model.encoder, spec.views.size
    if isinstance(encoder, WeightsSpec):
        encoder = encoder.model_copy(update={"weights": None})
    train = spec.train.model_copy(update={"batch_size": NUM_ITEMS, "precision": "float32"})
    model = spec.model.model_copy(update={"encoder": encoder})
    spec = spec.model_copy(update={"train": train, "model": model})
    problem = spec.problem(sizes)
    method = METHODS[spec.method.name](spec.method, problem)
    learner = make_learner(method, spec, device=torch.device("cpu"), ranks=ALONE)
    x_NCHW = torch.randn(NUM_ITEMS * spec.method.rows_per_example(problem.num_views), 3, size, size)
    if extra := spec.views.extra:
        x_NCHW = with_extra(x_NCHW, torch.rand(len(x_NCHW), extra.num_draws), spec.views)
    h_ND = learner.network.features(x_NCHW).detach()[:NUM_ITEMS]
    batch = Batch(
        {task: torch.arange(NUM_ITEMS) % sizes[task] for task in problem.of_kind("classes")},
        NUM_ITEMS,
        {task: torch.eye(NUM_ITEMS, sizes[task]).byte() for task in problem.of_kind("set")},
        torch.zeros(NUM_ITEMS, dtype=torch.int64),
    )
    columns = batch.labels | batch.label_sets
    for metric, (task, y_N) in product(spec.evaluate.metrics, columns.items()):
        if problem.kinds[task] in metric.kinds:
            # Each item four times: a metric may need several items of a class.
            metric.checked(task, torch.cat(4 * [h_ND]), torch.cat(4 * [y_N]))
    if spec.method.trains:
        lr = lr_at(100 * train.epochs - 1, train, steps_per_epoch=100)  # after warm-up
        update(learner, x_NCHW, batch, lr=lr, step=0, num_steps=1)
        torch.save(learner.optimizer.state_dict(), stored := BytesIO())
        stored.seek(0)
        try:
            torch.load(stored, weights_only=True)
        except UnpicklingError:
            raise SpecError(
                f"optimizer {train.optimizer.name!r}: its state must hold only tensors and plain "
                "values, because a checkpoint with anything else cannot be read"
            ) from None
