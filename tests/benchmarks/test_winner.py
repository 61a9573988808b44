"""The time to the winner, by our command and by a script."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image

from benchmarks import winner
from benchmarks.training import opened
from benchmarks.winner import OURS, PEER, Command, Job, Trial
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.losses import mtcon
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.spec import parse_spec

JOB = Job("labels.csv", "images")


@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.soak
def test_a_sweep_is_timed_against_a_script(tmp_path: Path) -> None:
    table = winner.compare(synthetic_job(tmp_path), rounds=1).splitlines()
    assert table[2].startswith("| the whole command | ")
    assert table[-1].startswith(f"Winners: {OURS}: 0.")


def synthetic_job(folder: Path) -> Job:
    """Writes synthetic images as files and returns a job of two tiny trials on them."""
    tasks = ("shape", "colour")
    data = {"kind": "synthetic", "num_items": 300, "tasks": tasks}
    spec = parse_spec({"name": "images", "data": data, "views": {"size": 16}})
    dataset = opened(spec, folder)
    names = [f"{i}.png" for i in range(len(dataset.images))]
    for name, image in zip(names, dataset.images, strict=True):
        Image.fromarray(image).save(folder / name)
    columns = {task: dataset.table.labels[task] for task in tasks}
    splits = [SPLITS[code] for code in dataset.table.split]
    table = pd.DataFrame({"image": names, "split": splits, **columns})
    table.to_csv(folder / "labels.csv", index=False)
    return Job(
        str(folder / "labels.csv"),
        str(folder),
        tasks=tasks,
        temperatures=(0.1, 0.5),
        epochs=2,
        size=16,
        batch_size=16,
    )


def test_times_to_the_winner_are_told_by_their_rounds() -> None:
    """Ours takes 10 and 20 seconds for a trial, the script 30; a fifth of them is the probe."""
    table = winner.table({OURS: [command(10.0), command(20.0)], PEER: [command(30.0)] * 2}, JOB)
    header, _, *rows, _, winners = table.splitlines()
    assert "4 temperatures, 4 epochs, 40 px, width 8" in header
    assert rows == [
        "| the whole command | 36.0 | 66.0 | 1.99 (1.43 to 2.54) |",
        "| until the first training step | 5.0 | 5.0 | 1.00 (1.00 to 1.00) |",
        "| a trial | 15.0 | 30.0 | 2.25 (1.50 to 3.00) |",
        "| of it training | 12.0 | 24.0 | 2.25 (1.50 to 3.00) |",
        "| of it the probe | 3.0 | 6.0 | 2.25 (1.50 to 3.00) |",
    ]
    assert winners.startswith("Winners: mtcon-ray: 0.2 with 0.800 on val; script: 0.2 with 0.800")


def command(seconds: float, best: float = 0.8) -> Command:
    """Returns a command whose trials take `seconds` each; the third one has the best accuracy."""
    trials = [
        Trial(temperature, accuracy, began, began + 0.8 * seconds, began + seconds)
        for temperature, accuracy, began in zip(
            (0.05, 0.1, 0.2, 0.5),
            (0.5, 0.6, best, 0.7),
            (105.0, 105.0, 105.0 + seconds, 105.0 + seconds),
            strict=True,
        )
    ]
    return Command(100.0, 106.0 + 2 * seconds, tuple(trials))


def test_a_script_with_another_accuracy_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winner, "run_sweep", lambda *_: command(10.0))
    monkeypatch.setattr(winner, "run_script", lambda *_: command(30.0, best=0.71))
    assert "| a trial | 10.0 | 30.0 | 3.00 (3.00 to 3.00) |" in winner.compare(JOB, rounds=1)
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
    for temperature in JOB.temperatures:
        pairs = {task: z_ND.unflatten(0, (-1, 2)) for task, z_ND in z_by_task.items()}
        expected = mtcon(pairs, labels, temperature=temperature)
        torch.testing.assert_close(multitask_loss(z_by_task, labels, temperature), expected)
