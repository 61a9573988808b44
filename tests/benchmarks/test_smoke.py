"""Each benchmark runs once with the smallest settings; the results are not checked."""

from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
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
    startup,
    tracking,
    training,
    views,
)
from benchmarks.gpu.bench import random_images
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.losses import nt_xent
from mtcon_ray.spec import load_spec, with_values
from mtcon_ray.training.device import pick_autocast

# Minutes in all; `make soak` runs them.
pytestmark = pytest.mark.soak

CPU = torch.device("cpu")

TINY_JOB = (
    "data.num_items=300",
    "views.size=16",
    "model.encoder.width=8",
    "train.epochs=2",
    "evaluate.bootstrap=100",
    "search.space.method.temperature={grid: [0.1, 0.5]}",
    "search.scheduler={name: none}",
)


@pytest.mark.ray
@pytest.mark.mlflow
def test_idle_trials_are_timed() -> None:
    ours, function = idle_trial.measure_sweep(3), idle_trial.measure_functions(3)
    for clock in (ours, function):
        assert len(clock.ends) == 3
        assert 0 < clock.per_trial < clock.total


@pytest.mark.ray
def test_a_trainer_in_each_trial_is_timed() -> None:
    """The first two trials start the peer's processes, so a third one is timed."""
    clock = idle_trial.measure_trainers(3)
    assert len(clock.ends) == 3
    assert 0 < clock.per_trial < clock.total


def test_idle_trials_are_told_by_their_rounds() -> None:
    def clock(*ends: float) -> idle_trial.Clock:
        return idle_trial.Clock(0.0, list(ends))

    ours = [clock(1, 2, 3), clock(1, 2, 4), clock(1, 2, 6)]
    peer = [clock(1, 2, 12), clock(1, 2, 42), clock(1, 2, 22)]
    table = idle_trial.table({"ours": ours, "peer": peer}, "ours").splitlines()
    assert table[2:] == [
        "| ours | 2.00 | 1 | 4.0 |",
        "| peer | 20.00 | 10.00 (5.00 to 20.00) | 22.0 |",
    ]


@pytest.mark.ray
@pytest.mark.mlflow
def test_tracking_is_timed() -> None:
    costs = tracking.measure_sweep(load_spec(tracking.DEFAULT_JOB, TINY_JOB))
    assert costs.num_trials == 2
    assert costs.num_reports == 4
    assert 0 < costs.on_training_thread < costs.training
    assert costs.sender > 0
    assert costs.share == (costs.on_training_thread + costs.sender) / costs.training


def test_losses_are_compared_and_timed() -> None:
    table = losses.measure(small=8, large=16, rounds=1)
    for way in ("mtcon", "SupContrast", "pytorch-metric-learning", "limit: matrix products"):
        assert f"3 tasks, 8 images: {way}" in table
        assert f"3 tasks, 16 images: {way}" in table


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


def test_views_are_timed() -> None:
    table = views.measure(num_images=8, rounds=1)
    assert "| mtcon-ray |" in table
    assert "torchvision, decoding JPEG, half of them blurred" in table
    lightly = find_spec("lightly") is not None
    assert ("| lightly, decoded images, half of them blurred |" in table) == lightly
    assert "| limit: memory bandwidth |" in table


@pytest.mark.parametrize(
    ("temperature", "scale", "differ"), [(0.1, 1, None), (0.09, 1, "losses"), (0.1, 2, "gradients")]
)
def test_what_is_timed_in_bfloat16_is_close_to_float32(
    temperature: float, scale: int, differ: str | None, tmp_path: Path
) -> None:
    dataset = random_images(60, 16)
    exact = training.spec_of(60, "small", "float32", size=16, batch_size=16)
    changes = {"train.precision": "bfloat16", "method.temperature": temperature}
    half = training.run_of(with_values(exact, changes), dataset, tmp_path / "half")
    for parameter in half.network.parameters():
        parameter.register_hook(lambda gradient: scale * gradient)
    expected = pytest.raises(AssertionError, match=f"{differ} differ") if differ else nullcontext()
    with expected:
        training.check_close_step(half, training.run_of(exact, dataset, tmp_path / "exact"))


def test_a_loop_that_computes_something_else_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "supcontrast_loss", lambda z, labels: z.square().sum())
    spec = training.spec_of(60, "small", "float32", size=16, batch_size=16)
    with pytest.raises(AssertionError):
        training.check_same_step(spec, random_images(60, 16), tmp_path / "run")


def test_training_is_timed() -> None:
    table = training.measure(num_images=64, rounds=1, encoder="small")
    assert "| mtcon-ray |" in table
    in_half = pick_autocast("auto", CPU) is not None
    assert table.count("| as SupContrast, float32 |") == 1 + in_half
    assert ("| limit: the network alone, bfloat16 |" in table) == in_half


def test_precisions_are_compared() -> None:
    tiny = load_spec(tracking.DEFAULT_JOB, TINY_JOB).trial({"method.temperature": 0.1})
    header, _, *rows = precision.measure(tiny, seeds=range(2)).splitlines()
    assert "| float32 | bfloat16 |" in header
    assert [row.split(" ")[1] for row in rows] == ["shape", "colour", "texture", "tilt"]


def test_precisions_differ_by_the_means_of_their_seeds() -> None:
    dataset = replace(random_images(60, 4), tasks=("shape",))

    def reported(*accuracies: float) -> list[dict[str, float]]:
        return [{"test/accuracy/shape": a, "test/accuracy_std/shape": 0.02} for a in accuracies]

    found = {"float32": reported(0.5, 0.7), "bfloat16": reported(0.6, 0.7)}
    row = precision.table(found, dataset).splitlines()[-1]
    assert row == "| shape (4 classes) | 0.600 (0.141) | 0.650 (0.071) | +0.050 (0.112) | 0.020 |"


def test_probes_are_timed() -> None:
    table = probes.measure(num_images=200, encoder="small", rounds=1)
    assert "as SupContrast: 60 epochs" in table
    assert "| mtcon-ray, solver sgd, 20 epochs |" in table
    assert "times as long as sgd" in table.splitlines()[-1]


def test_probes_are_not_timed_where_accuracies_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "peer_accuracy", lambda *_: 0.5 / 3)
    with pytest.raises(AssertionError, match="'shape'"):
        probes.measure(num_images=200, encoder="small", rounds=1)


def test_profiles_are_of_the_views_and_losses_that_are_timed() -> None:
    table = profiles.measure(repeats=3)
    for part in ("colour jitter", "all", "SmallBatchSum", "without the profiler"):
        assert f"| {part} |" in table
    images = torch.randint(0, 256, (4, 80, 80, 3), dtype=torch.uint8)
    spec = ViewsSpec(size=64)
    drawn = draw_parameters(8, 80, spec, torch.Generator().manual_seed(1))
    parts = profiles.in_parts(images, spec, 1, lambda _, do: do())
    assert torch.equal(parts, make_views(images, drawn, spec))


def test_a_large_loss_is_measured() -> None:
    assert "16 images, 32 views: mtcon" in large_loss.measure(num_images=16)


def test_probes_are_weighed_against_training() -> None:
    tiny = idle_trial.sweep_spec(1)
    table = cadence.measure({"tiny": with_values(tiny, {"train.batch_size": 16})}, rounds=1)
    assert "| tiny |" in table


def test_the_first_probe_and_all_others_are_weighed_against_every_epoch() -> None:
    """A training of five epochs is probed after epochs 2, 4 and 5."""
    shares = cadence.shares_of([9.0, 2.0, 1.0], [0.5, 0.2, 0.25], num_epochs=5, every=2)
    assert shares == pytest.approx([(0.5 + 2 * 0.2) / 10, (0.5 + 2 * 0.25) / 5])


@pytest.mark.ray
@pytest.mark.mlflow
def test_commands_are_timed_in_units_of_an_import() -> None:
    table = startup.measure(1, ["list --root .", "schema"]).splitlines()
    assert [line.split("|")[1].strip() for line in table[2:]] == [
        "`mtcon-ray list --root .`", "`mtcon-ray schema`"
    ]  # fmt: skip
