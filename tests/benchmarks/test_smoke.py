"""Each benchmark runs once with the smallest settings, and times only what computes the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import (
    cadence,
    idle_trial,
    large_loss,
    losses,
    precision,
    probes,
    profiles,
    scale,
    search,
    search_curves,
    startup,
    tracking,
    training,
    views,
    winner,
)
from benchmarks.gpu.bench import random_images
from benchmarks.winner import Command, Job, Trial
from mtcon_ray.losses import mtcon, nt_xent
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.spec.run_spec import RunSpec, load_spec, parse_spec, with_values

SOAK = pytest.mark.soak  # minutes in all
RAY = (SOAK, pytest.mark.ray, pytest.mark.mlflow)
JOB = Job("labels.csv", "images")
TINY_JOB = (
    "data.num_items=300",
    "views.size=16",
    "model.encoder.width=8",
    "train.epochs=2",
    "evaluate.bootstrap=100",
    "search.space.method.temperature={grid: [0.1, 0.5]}",
    "search.scheduler={name: none}",
)


def tiny() -> RunSpec:
    return load_spec(tracking.DEFAULT_JOB, TINY_JOB)


def table_of_searches() -> str:
    rising = {str(t): [t * e / 9 for e in range(1, 10)] for t in search.TEMPERATURES}
    spec = search.grid_spec(photos=False, epochs=9, seeds=1)
    return search.compare(spec, [rising], range(1))


def table_of_cadence() -> str:
    spec = with_values(idle_trial.sweep_spec(1), {"train.batch_size": 16})
    return cadence.measure({"tiny": spec}, rounds=1)


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        pytest.param(lambda: losses.measure(8, 16, 1), "3 tasks, 16 images: mtcon", marks=SOAK),
        pytest.param(lambda: views.measure(8, 1), "| mtcon-ray |", marks=SOAK),
        pytest.param(
            lambda: training.measure(64, 1, encoder="small"), "| as SupContrast", marks=SOAK
        ),
        pytest.param(
            lambda: precision.measure(tiny().trial({"method.temperature": 0.1}), seeds=range(2)),
            "| float32 | bfloat16 |", marks=SOAK,
        ),
        pytest.param(
            lambda: probes.measure(200, encoder="small", rounds=1), "as SupContrast", marks=SOAK
        ),
        pytest.param(lambda: profiles.measure(repeats=3), "| colour jitter |", marks=SOAK),
        pytest.param(lambda: large_loss.measure(num_images=16), "32 views: mtcon", marks=SOAK),
        pytest.param(table_of_cadence, "| tiny |", marks=SOAK),
        pytest.param(search_curves.measure, "| halving | 24.1% | ", marks=SOAK),
        pytest.param(table_of_searches, "| halving | 24.1% |", marks=RAY),
        pytest.param(lambda: scale.measure((3, 5), 1), "| TPE: 5 trials", marks=RAY),
        pytest.param(
            lambda: startup.measure(1, ["list --root ."]), "`mtcon-ray list --root .`", marks=RAY
        ),
        pytest.param(
            lambda: str(tracking.measure_sweep(tiny()).num_reports), "4", marks=RAY
        ),
        pytest.param(
            lambda: str([len(measure(3).ends) for measure in (
                idle_trial.measure_sweep, idle_trial.measure_functions, idle_trial.measure_trainers
            )]),
            "[3, 3, 3]", marks=RAY,
        ),
    ],
)  # fmt: skip
def test_a_benchmark_runs(measure: Callable[[], str], words: str) -> None:
    assert words in measure()


def test_a_peer_that_computes_something_else_is_not_timed() -> None:
    z_BVD = torch.nn.functional.normalize(torch.randn(4, 2, 3), dim=2).requires_grad_()

    def ours() -> torch.Tensor:
        return nt_xent(z_BVD, temperature=0.1)

    def other() -> torch.Tensor:
        return nt_xent(z_BVD, temperature=0.11)

    def same_value() -> torch.Tensor:
        return ours().detach() + other() - other().detach()

    losses.check_equal(ours, ours, [z_BVD])
    with pytest.raises(AssertionError, match="not close"):
        losses.check_equal(ours, other, [z_BVD])
    with pytest.raises(AssertionError, match="gradients differ"):
        losses.check_equal(ours, same_value, [z_BVD])


@SOAK
def test_a_loop_that_computes_something_else_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "supcontrast_loss", lambda z, labels: z.square().sum())
    spec = training.spec_of(60, "small", "float32", size=16, batch_size=16)
    with pytest.raises(AssertionError):
        training.check_same_step(spec, random_images(60, 16), tmp_path / "run")


@SOAK
def test_probes_are_not_timed_where_accuracies_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "peer_accuracy", lambda *_: 0.5 / 3)
    with pytest.raises(AssertionError, match="'shape'"):
        probes.measure(num_images=200, encoder="small", rounds=1)


def command(seconds: float, best: float = 0.8) -> Command:
    """Returns a command whose trials take `seconds` each; the third one has the best accuracy."""
    scores = {0.05: 0.5, 0.1: 0.6, 0.2: best, 0.5: 0.7}
    trials = [
        Trial(t, score, 105.0, 105.0 + 0.8 * seconds, 105.0 + seconds)
        for t, score in scores.items()
    ]
    return Command(100.0, 106.0 + 2 * seconds, tuple(trials))


def test_a_script_with_another_accuracy_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winner, "run_sweep", lambda *_: command(10.0))
    monkeypatch.setattr(winner, "run_script", lambda *_: command(30.0, best=0.71))
    assert "| a trial |" in winner.compare(JOB, rounds=1)
    monkeypatch.setattr(winner, "run_script", lambda *_: command(30.0, best=0.9001))
    with pytest.raises(AssertionError, match=r"accuracy=0\.9001"):
        winner.compare(JOB, rounds=1)


def test_the_script_trains_the_network_and_losses_of_the_sweep() -> None:
    from benchmarks.peers.winner_script import Network, multitask_loss

    spec = parse_spec(winner.spec_of(JOB))
    make = projections(JOB.tasks, dim=JOB.head_dim, hidden=None)
    ours = build_network(spec.model, make, seed=0)
    peer = Network(JOB.width, JOB.head_dim, list(JOB.tasks))
    shapes = [[p.shape for p in each.parameters()] for each in (ours, peer)]
    assert shapes[0] == shapes[1]
    z_by_task = peer(torch.randn(16, 3, JOB.size, JOB.size))
    labels = {task: torch.randint(0, 3, (8,)) for task in JOB.tasks}
    pairs = {task: z_ND.unflatten(0, (-1, 2)) for task, z_ND in z_by_task.items()}
    expected = mtcon(pairs, labels, temperature=0.1)
    torch.testing.assert_close(multitask_loss(z_by_task, labels, 0.1), expected)
