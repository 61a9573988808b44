"""Each benchmark runs once with the smallest settings, and times only what computes the same."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import pytest
import torch

from benchmarks import (
    cadence,
    decoding,
    idle_trial,
    large_loss,
    losses,
    precision,
    predictions,
    probes,
    profiles,
    scale,
    search,
    search_curves,
    startup,
    tables,
    tracking,
    training,
    views,
    waiting,
    winner,
)
from benchmarks.winner import Job
from mtcon_ray.losses import mtcon
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from tests import specs
from tests.problems import projections

with_ray = partial(pytest.param, marks=[pytest.mark.ray, pytest.mark.mlflow])
POINT = {"method.temperature": 0.1}
JOB = Job("labels.csv", "images")


def tiny() -> RunSpec:
    search = {**specs.GRID, "space": {"method.temperature": {"grid": [0.1, 0.5]}}}
    return parse_spec({**specs.TINY, "name": "tiny", "tracking": {}, "search": search})


def table_of_searches() -> str:
    rising = {str(t): [t * e / 9 for e in range(1, 10)] for t in search.TEMPERATURES}
    return search.compare(search.grid_spec(photos=False, epochs=9, seeds=1), [rising], range(1))


def table_of_cadence() -> str:
    spec = with_values(idle_trial.sweep_spec(1), {"train.batch_size": 16})
    return cadence.measure({"tiny": spec}, rounds=1)


BENCHMARKS = [
    (lambda: losses.measure(8, 16, 1), "3 tasks, 16 images: mtcon"),
    (lambda: views.measure(8, 1), "| mtcon-ray |"),
    (lambda: training.measure(64, 1, encoder="small"), "| as SupContrast"),
    (lambda: precision.measure(tiny().trial(POINT), seeds=range(2)), "| float32 | bfloat16 |"),
    (lambda: probes.measure(200, "small", 1, [(99, 3)]), "| 99 items, 3 classes |"),
    (predictions.measure, "| ImageNet-1k, 512 GPUs |"),
    (lambda: profiles.measure(repeats=3), "| colour jitter |"),
    (lambda: large_loss.measure(16, (64,)), "128 views: one of 64 ranks"),
    (table_of_cadence, "| tiny |"),
    (search_curves.measure, "| halving | 55.6% | "),
    (lambda: tables.measure([(3000, 3)]), "| 3,000 x 3 |"),
    with_ray(lambda: decoding.measure(1, 1, 256), "| to 224 px: two nodes |"),
    with_ray(table_of_searches, "| halving | 55.6% |"),
    with_ray(lambda: scale.measure((3, 5), 1, scale.SMALLEST), "| 4, 0 | 4, 0 |"),
    with_ray(lambda: startup.measure(1, ["list --root ."]), "`mtcon-ray list --root .`"),
    with_ray(lambda: str(tracking.measure_sweep(tiny()).num_epochs), "4"),
    with_ray(lambda: waiting.waiting_table((2,)), "\n| 2 | "),
    with_ray(lambda: str([len(way(3).ends) for way in idle_trial.WAYS]), "[3, 3, 3]"),
]


@pytest.mark.soak  # minutes in all
@pytest.mark.parametrize(("measure", "words"), BENCHMARKS)
def test_a_benchmark_runs(measure: Callable[[], str], words: str) -> None:
    assert words in measure()


def test_the_script_trains_the_network_and_losses_of_the_sweep() -> None:
    from benchmarks.peers.winner_script import Network, multitask_loss

    spec = parse_spec(winner.spec_of(JOB))
    ours = build_network(spec.model, projections(JOB.tasks, dim=JOB.head_dim), seed=0)
    peer = Network(asdict(JOB))
    shapes = [[p.shape for p in each.parameters()] for each in (ours, peer)]
    assert shapes[0] == shapes[1]
    z_by_task = peer(torch.randn(16, 3, JOB.size, JOB.size))
    labels = {task: torch.randint(0, 3, (8,)) for task in JOB.tasks}
    pairs = {task: z_ND.unflatten(0, (-1, 2)) for task, z_ND in z_by_task.items()}
    expected = mtcon(pairs, labels, temperature=0.1)
    torch.testing.assert_close(multitask_loss(z_by_task, labels, 0.1), expected)
