"""Fixtures: a data set whose images show three labels of classes, and a network to probe."""

from typing import Any

import numpy as np
import pytest
import torch

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.network import Network, build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.evaluate import EvaluateSpec, SGDProbeSpec, ShortProbeSpec
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.spec.views import ViewsSpec
from tests.problems import projections

VIEWS = ViewsSpec(size=16)
CPU = torch.device("cpu")
TASKS = ("Heel height", "colour")
NUM_CLASSES = {"Heel height": 3, "colour": 2, "brand": 4}
SHORT = ShortProbeSpec(penalty=0.03)
SPEC = EvaluateSpec(short_probe=SHORT, bootstrap=200, batch_size=32, neighbours=7)
SGD = SGDProbeSpec(epochs=5, batch_size=8, momentum=0.8)
NUM_ITEMS = 150


class RecordedImages(np.ndarray[Any, Any]):
    """Image array that records in `read` the rows that were read."""

    read: list[int]

    def __getitem__(self, rows: Any) -> Any:
        self.read.extend(rows.tolist())
        return np.asarray(self)[rows]


@pytest.fixture
def network() -> Network:
    return build_network(ModelSpec(encoder=Small.Spec(width=4)), projections(TASKS, dim=8), seed=0)


@pytest.fixture
def dataset() -> Dataset:
    """Returns 90 training, 30 validation and 27 test items, and 3 left out.

    The labels determine the mean of the colour channels, up to noise.
    """
    draw = np.random.default_rng(0)
    labels = {label: draw.integers(0, size, NUM_ITEMS) for label, size in NUM_CLASSES.items()}
    level = [labels[label] * 150 // size for label, size in NUM_CLASSES.items()]
    noise = draw.integers(0, 100, (NUM_ITEMS, 20, 20, 3))
    pixels = (np.stack(level, axis=1)[:, None, None] + noise).astype(np.uint8)
    split = draw.permutation(np.repeat([0, 1, 2, -1], [90, 30, 27, 3])).astype(np.int8)
    labels["brand"][draw.random(NUM_ITEMS) < 0.4] = -1
    classes = {k: tuple("abcd"[:n]) for k, n in NUM_CLASSES.items()}
    table = LabelTable(tuple(map(str, range(NUM_ITEMS))), labels, classes, split)
    images = pixels.view(RecordedImages)
    images.read = []
    return Dataset(images, table, TASKS, ("brand",), "0")


def noisy_items(num: int, seed: int, width: int) -> LabelledFeatures:
    """Returns features with noisy labels of which some are unknown: two of classes, and a set."""
    generator = torch.Generator().manual_seed(seed)
    x_ND = torch.randn(num, width, generator=generator)
    true = torch.Generator().manual_seed(99)
    noise_NL = torch.randn(num, 16, generator=generator)
    logits = x_ND @ torch.randn(width, 16, generator=true) + noise_NL
    shape, colour = logits[:, :5].argmax(dim=1), logits[:, 5:8].argmax(dim=1)
    colour[::7] = MISSING
    looks = (logits[:, 8:12] > 0).to(torch.uint8)
    looks[::5, 1] = UNKNOWN_BIT
    looks[3] = UNKNOWN_BIT
    return LabelledFeatures(x_ND, {"shape": shape, "colour": colour, "looks": looks})


def evaluation(network: Network, dataset: Dataset, **sections: Any) -> Evaluation:
    """Returns an evaluation by a spec without the fields of the data set, which are not read."""
    fields = {"evaluate": SPEC, "views": VIEWS, "seed": 7, **sections}
    return Evaluation(network, dataset, RunSpec(name="a").model_copy(update=fields), CPU)


def run_validate(
    network: Network, dataset: Dataset, *, seed: int = 7, weights: Any = None, **changes: Any
) -> dict[str, float]:
    spec = EvaluateSpec.model_validate({**SPEC.model_dump(), **changes})
    sections = {"evaluate": spec, "seed": seed, "search": SearchSpec(objective=weights)}
    return evaluation(network, dataset, **sections).validate()


def run_report(network: Network, dataset: Dataset, spec: EvaluateSpec = SPEC) -> dict[str, float]:
    return evaluation(network, dataset, evaluate=spec).report()


def features_of(network: Network, data: Dataset, split: Any, head: Any = None) -> LabelledFeatures:
    rows = data.table.rows(split)
    given = network, data.images, rows, VIEWS
    features = extract_features(*given, batch_size=32, device=CPU, head=head)
    labels = {k: torch.from_numpy(v[rows]) for k, v in data.table.labels.items()}
    return LabelledFeatures(features, labels)
