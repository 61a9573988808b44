"""Experiments in calls of some minutes: with a ResNet-18 on a GPU, with a small one on a CPU.

    python experiments/pieces.py headline --photos FOLDER --minutes 8

A call trains missing trainings until the minutes are over, writes the tables of all finished
trainings, and packs them as FOLDER.tar.gz. The next call continues. It runs without Ray and MLflow.

Pieces with a ResNet-18: headline (systems from a random start), imagenet (systems from --weights
FILE), noise (weights of tasks with wrong colours), grids (temperature, epochs, batch size). Pieces
with the small encoder: retrieval (probes and retrieval of MTCon and cross-entropy), and the same
with few images, missing labels, and wrong labels. First, each system gets the best of three
learning rates, by the validation accuracy of a short training each, of its task or the mean of all.
If the printed estimate is too long, --epochs shortens the trainings of all systems alike, in a
folder of their own. A later call with more --seeds adds them.

Hypothesis, written before the trainings: linear probes do not distinguish MTCon from multi-task
cross-entropy, but retrieval in the space of a task does.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np
import pandas as pd
import torch

from experiments.reproduction.cells import SYSTEMS
from experiments.reproduction.figures import Curve, CurvePanel, intervals_figure
from experiments.reproduction.interval_table import percent_of
from experiments.reproduction.piece_tables import write
from experiments.reproduction.pieces import (
    LABELS,
    PROBE,
    TASKS,
    Claim,
    Piece,
    Run,
    System,
)
from experiments.reproduction.retrieval import ENCODER, HEAD, HIDDEN
from experiments.reproduction.script import FOLDER, script
from mtcon_ray.base.cpus import usable_cpus
from mtcon_ray.base.paths import prepare_root
from mtcon_ray.cli import options
from mtcon_ray.cli.main import run_script
from mtcon_ray.display.console import say
from mtcon_ray.evaluation.intervals import mean_interval


def of_paper(key: str) -> System:
    """Returns a system of the reproduction. "supcon:gender" is SupCon on a single label."""
    name, _, label = key.partition(":")
    known = SYSTEMS[name]
    method = {**known.method, **({"task": label} if label else {})}
    title = f"{known.title} on {label}" if label else known.title
    return System(title, known.family, {"method": method, **known.changes})


MTCON, EQUAL = of_paper("mtcon"), of_paper("mtcon-equal")
XENT = of_paper("xent-multi")
HIDDEN_XENT = System(
    "XEnt multi-task, hidden layer", "xent", {"method": {"name": "xent", "head": "hidden"}}
)
UNTRAINED = of_paper("untrained")
FROZEN = replace(UNTRAINED, title="ImageNet encoder, not trained")
HEADLINE = (
    MTCON,
    EQUAL,
    XENT,
    HIDDEN_XENT,
    of_paper("xent-kendall"),
    *(of_paper(f"{name}:{task}") for task in TASKS for name in ("supcon", "xent")),
    UNTRAINED,
    of_paper("handcrafted"),
)


def weighted(share: float) -> tuple[System, System]:
    """Returns equal and learned weights of tasks, with this share of wrong colours."""
    noise = {"data.label_noise": {"colour": share}} if share else {}
    equal, learned = (
        replace(
            system,
            title=f"{system.title}, {share:g} of colours wrong",
            changes={**system.changes, **noise},
        )
        for system in (EQUAL, MTCON)
    )
    return equal, learned


SHARES = (0.0, 1.0)


def grids(epochs: int, batch_size: int) -> Iterator[System]:
    """Yields MTCon at temperatures, lengths, and batch sizes with rates in proportion.

    Batch sizes have equal epochs, then equal steps.
    """

    def varied(title: str, *, rate: float = 1.0, **changes: Any) -> System:
        fields = {path.replace("__", "."): value for path, value in changes.items()}
        return System(
            title, MTCON.family, {**MTCON.changes, **fields}, tuned_as=MTCON.title, rate=rate
        )

    yield MTCON
    for value in (0.03, 0.07, 0.2, 0.5, 1.0):
        yield varied(f"temperature {value:g}", method__temperature=value)
    for share in (0.25, 0.5, 2.0, 4.0):
        yield varied(f"{round(share * epochs)} epochs", train__epochs=round(share * epochs))
    for factor in (0.25, 0.5, 2.0, 4.0):
        size = round(factor * batch_size)
        yield varied(f"batches of {size}, equal epochs", rate=factor, train__batch_size=size)
        yield varied(
            f"batches of {size}, equal steps",
            rate=factor,
            train__batch_size=size,
            train__epochs=round(factor * epochs),
        )


def probes(better: System, than: System, labels: Iterable[str] = LABELS) -> Iterator[Claim]:
    """Yields the claims of higher probe scores for one system than for another, by label."""
    yield from (Claim((better.title, PROBE), (than.title, PROBE), label) for label in labels)


def headline() -> Iterator[Claim]:
    """Yields the claims about MTCon's probes, and about retrieval in the space of each task."""
    single = {system.title: system for system in HEADLINE}
    for than in (XENT, EQUAL):
        yield from probes(MTCON, than)
    for task in TASKS:
        for other in (f"SupCon on {task}", f"XEnt on {task}"):
            yield from probes(MTCON, single[other], [task])
        for than, space in (
            (XENT, f"{HEAD} {task}"),
            (XENT, ENCODER),
            (HIDDEN_XENT, f"{HIDDEN} {task}"),
        ):
            yield Claim((MTCON.title, f"{HEAD} {task}"), (than.title, space), task)


def retrieval() -> Iterator[Claim]:
    """Yields the claims of `headline` about MTCon and multi-task cross-entropy alone."""
    opponents = {XENT.title, HIDDEN_XENT.title}
    yield from (claim for claim in headline() if claim.than[0] in opponents)


def noise() -> Iterator[Claim]:
    """Yields the claims about learned weights, at each share of wrong colours."""
    for equal, learned in map(weighted, SHARES):
        yield from probes(learned, equal)


def grids_piece(epochs: int = 30) -> Piece:
    """Returns the piece of temperatures, lengths and batch sizes."""
    usual, *others = systems = tuple(grids(epochs, 128))
    claims = tuple(claim for other in others for claim in probes(usual, other))
    return Piece(systems, claims, epochs=epochs, tuning_epochs=max(2, epochs // 5), seeds=3)


# Probes, and retrieval in the space of each task, on a CPU.
RETRIEVAL = Piece(
    (MTCON, XENT, HIDDEN_XENT, UNTRAINED, of_paper("handcrafted")),
    tuple(retrieval()),
    epochs=24,
    tuning_epochs=6,
    seeds=5,
    base={
        "views.size": 40,
        "model.encoder": {"name": "small", "width": 16},
        "model.head_dim": 32,
        "train.batch_size": 64,
    },
)


def retrieval_with(epochs: int = RETRIEVAL.epochs, **data: Any) -> Piece:
    """Returns `RETRIEVAL` with other fields of `data`, and as many epochs."""
    fields = {f"data.{name}": value for name, value in data.items()}
    return replace(RETRIEVAL, epochs=epochs, base={**RETRIEVAL.base, **fields})


PIECES = {
    "headline": Piece(HEADLINE, tuple(headline()), epochs=60, tuning_epochs=12, seeds=4),
    "imagenet": Piece(
        tuple(FROZEN if system.title == UNTRAINED.title else system for system in HEADLINE),
        tuple(headline()),
        epochs=20,
        tuning_epochs=4,
        seeds=4,
        base={
            "views.size": 112,
            "views.mean": [0.5, 0.5, 0.5],
            "views.std": [0.5, 0.5, 0.5],
            "train.batch_size": 64,
        },
    ),
    "noise": Piece(
        tuple(system for share in SHARES for system in weighted(share)),
        tuple(noise()),
        epochs=30,
        tuning_epochs=6,
        seeds=10,
    ),
    "grids": grids_piece(),
    "retrieval": RETRIEVAL,
    "retrieval-few": retrieval_with(2 * RETRIEVAL.epochs, fraction=0.2),
    "retrieval-missing": RETRIEVAL,
    "retrieval-wrong": retrieval_with(label_noise=dict.fromkeys(TASKS, 0.3)),
}
MISSING = 0.5  # of retrieval-missing's labels


# Pieces of the picture with their names there, and its systems with their spaces.
CONDITIONS = {
    "retrieval": "all",
    "retrieval-missing": "half\nmissing",
    "retrieval-wrong": "30 %\nwrong",
    "retrieval-few": "a fifth\nof all",
}
SPACES = {
    "MTCon, head": (MTCON.title, HEAD),
    "cross-entropy, logits": (XENT.title, HEAD),
    "cross-entropy, hidden layer": (HIDDEN_XENT.title, HIDDEN),
    "cross-entropy, encoder": (XENT.title, ENCODER),
}


def picture(run: Run) -> bytes:
    """Draws retrieval in each task's space, for all pieces of `CONDITIONS` in the run's root."""
    runs = [
        replace(
            run,
            piece=replace(PIECES[name], seeds=run.piece.seeds),
            folder=run.folder.with_name(name),
        )
        for name in CONDITIONS
    ]
    panels = []
    for task in TASKS:
        curves = {}
        for name, (system, space) in SPACES.items():
            place = space if space == ENCODER else f"{space} {task}"
            found = [each.scores(system, place, task) for each in runs]
            points = [percent_of(scores and mean_interval(scores)) for scores in found]
            curves[name] = Curve(range(len(runs)), points)
        panels.append(CurvePanel(task, "mAP@R, %", curves))
    return intervals_figure(panels, list(CONDITIONS.values()))


def with_missing_labels(csv: Path, goal: Path) -> Path:
    """Writes a copy of the table in which a share of the train labels of each task is missing."""
    table = pd.read_csv(csv)
    draw = np.random.default_rng(0)
    for task in TASKS:
        hidden = (table["split"] == "train") & (draw.random(len(table)) < MISSING)
        table[task] = table[task].mask(hidden)
    goal.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(goal, index=False)
    return goal


@click.argument("name", type=click.Choice(list(PIECES)))
@click.option("--photos", type=FOLDER, required=True, help="Folder with fashion_shoes.")
@click.option("--minutes", type=float, default=8.0, show_default=True, help="Length of this call.")
@click.option("--weights", type=click.Path(path_type=Path), help="Weights of imagenet's encoder.")
@click.option("--epochs", type=click.IntRange(8), help="Epochs of a training of every system.")
@click.option("--seeds", type=click.IntRange(1), help="Seeds of every system.")
@click.option("--frozen", is_flag=True, help="Only the systems that are not trained.")
@options.root_folder
def pieces(
    name: str,
    photos: Path,
    minutes: float,
    weights: Path | None,
    epochs: int | None,
    seeds: int | None,
    frozen: bool,
    root: Path,
) -> int:
    """Trains the rest of a piece. Returns 0 if all is trained, otherwise 1."""
    prepare_root(root)
    piece, kept = PIECES[name], root / "pieces" / name
    if epochs:
        kept = kept.with_name(f"{name}-{epochs}-epochs")
        # Above the epoch of warm-up.
        tuning = max(2, round(piece.tuning_epochs * epochs / piece.epochs))
        piece = grids_piece(epochs) if name == "grids" else piece
        piece = replace(piece, epochs=epochs, tuning_epochs=tuning)
    piece = replace(piece, seeds=seeds or piece.seeds)
    if frozen:
        fixed = tuple(system for system in piece.systems if system.family == "none")
        piece = replace(piece, systems=fixed, claims=())
    device: dict[str, Any] = {"resources.cpus": min(8, usable_cpus())}
    if torch.cuda.is_available():
        device |= {"resources.gpus": 1, "train.compile": "graphs"}
    piece = replace(piece, base={**piece.base, **device})
    if name == "imagenet":
        if weights is None:
            raise click.UsageError("the piece imagenet needs --weights FILE")
        encoder = {"name": "timm", "model": "tf_efficientnet_lite0", "weights": str(weights)}
        piece = replace(piece, base={**piece.base, "model.encoder": encoder})
    folder = photos / "fashion_shoes"
    data = {
        "kind": "table",
        "csv": str(folder / "labels.csv"),
        "images": str(folder / "images.tar.gz"),
        "split_column": "split",
        "group_column": "group_id",
    }
    if name == "retrieval-missing":
        data["csv"] = str(with_missing_labels(folder / "labels.csv", kept / "labels.csv"))
    run = Run(piece, data, root, kept, monotonic() + 60 * minutes)
    say(run.estimate())
    is_whole = False
    try:
        is_whole = run.train_all()
    finally:  # what is trained is written after an error, too
        if name in CONDITIONS and not epochs:
            (kept.parent / "retrieval.png").write_bytes(picture(run))
        say(f"{'all is trained' if is_whole else 'the next call continues'}: {write(run)}")
    return 0 if is_whole else 1


COMMAND = script("pieces", "Train what is left of a piece, then write its tables.", pieces)

if __name__ == "__main__":
    run_script(COMMAND, None, sys.argv[0])
