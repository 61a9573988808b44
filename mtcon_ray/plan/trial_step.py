"""A training step on two random images with the plugins of a spec, before anything is started."""

import inspect
import traceback
from collections.abc import Mapping
from itertools import product

import torch

from mtcon_ray.data.batch import Batch
from mtcon_ray.data.views import with_extra
from mtcon_ray.errors import MtconError, SpecError
from mtcon_ray.methods import METHODS
from mtcon_ray.spec.encoders import WeightsSpec
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.training.distributed import ALONE
from mtcon_ray.training.optimizer import lr_at
from mtcon_ray.training.step import make_learner, update

NUM_ITEMS = 2


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
        {task: torch.randn(NUM_ITEMS) for task in problem.of_kind("number")},
        torch.zeros(NUM_ITEMS, dtype=torch.int64),
    )
    columns = batch.labels | batch.label_sets | batch.numbers
    for metric, (task, y_N) in product(spec.evaluate.metrics, columns.items()):
        if problem.kinds[task] in metric.kinds:
            # Each item four times: a metric may need several items of a class.
            metric.checked(task, torch.cat(4 * [h_ND]), torch.cat(4 * [y_N]))
    if spec.method.trains:
        lr = lr_at(100 * train.epochs - 1, train, steps_per_epoch=100)  # after warm-up
        update(learner, x_NCHW, batch, lr=lr, step=0, num_steps=1)
