"""Trainings of a piece until the minutes of a call are over, without Ray and MLflow."""

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

import numpy as np
import torch

from experiments.reproduction.retrieval import query_scores, spaces
from mtcon_ray.base import metrics
from mtcon_ray.base.paths import PREDICTIONS_FILE, cache_folder
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.display.console import say
from mtcon_ray.errors import DivergedError, SpecError
from mtcon_ray.evaluation.intervals import Scores, resampled_scores
from mtcon_ray.evaluation.neighbours import retrieval
from mtcon_ray.evaluation.predictions import load_predictions
from mtcon_ray.plan.local import choose_device
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec, set_value
from mtcon_ray.training.trainer import Trainer

TASKS, HELD_OUT = ("category", "gender", "colour"), ("brand",)
LABELS = (*TASKS, *HELD_OUT)
# The place of a measurement: linear probes, or retrieval in a space.
PROBE = "probe"
DIVERGED = "diverged"  # in the record of a training without a result
HEAD_DIM = 64
SHOES: Mapping[str, Any] = {
    "data.tasks": TASKS,
    "data.held_out": HELD_OUT,
    "views.size": 64,
    "views.crop_scale": [0.4, 1.0],
    "views.brightness": 0.2,
    "views.contrast": 0.2,
    "views.hue": 0.02,
    "views.saturation": 0.2,
    "views.grayscale": 0.0,
    "model.encoder": {"name": "resnet18"},
    "model.head_dim": HEAD_DIM,
    "train.batch_size": 128,
    "train.warmup_epochs": 1,
    "evaluate.short_probe.max_items": 1536,
}
RATES = {"contrastive": (0.05, 0.15, 0.45), "xent": (0.0125, 0.0375, 0.1125), "none": (0.1,)}


@dataclass(frozen=True)
class System:
    """A system of a piece: the family of its rates, and dotted paths of its spec.

    `tuned_as` names another system. This system uses its learning rates times `rate`.
    """

    title: str
    family: str
    changes: Mapping[str, Any]
    tuned_as: str | None = None
    rate: float = 1.0


@dataclass(frozen=True)
class Claim:
    """A system in a space scores higher on a label than another; sides are (system, space)."""

    better: tuple[str, str]
    than: tuple[str, str]
    label: str

    def __str__(self) -> str:
        names = [f"{system} ({space})" for system, space in (self.better, self.than)]
        return f"{names[0]} above {names[1]}, {self.label}"


@dataclass(frozen=True)
class Piece:
    """Systems with the same training, with the seeds 1 to `seeds`, and claims about them.

    Seed 0 is for tuning.
    """

    systems: tuple[System, ...]
    claims: tuple[Claim, ...]
    epochs: int
    tuning_epochs: int
    seeds: int
    base: Mapping[str, Any] = field(default_factory=dict)

    def epochs_of(self, system: System) -> int:
        """Returns the epochs of a training, 0 for a network that is not trained."""
        epochs: int = system.changes.get("train.epochs", self.epochs)
        return 0 if system.family == "none" else epochs

    def spec(self, system: System, data: Mapping[str, Any], **changes: Any) -> RunSpec:
        """Returns the spec of a training; `changes` have the values of `train`."""
        raw: dict[str, Any] = {"name": "piece", "data": dict(data)}
        own = {f"train.{name}": value for name, value in changes.items()}
        values = {**SHOES, "train.epochs": self.epochs, **self.base, **own, **system.changes}
        for path, value in values.items():
            set_value(raw, path, deepcopy(value))
        set_value(raw, "evaluate.every", raw["train"]["epochs"])
        return parse_spec(raw, where=system.title)


class OutOfTimeError(Exception):
    """The minutes of this call are over."""


@dataclass(frozen=True)
class Run:
    """A piece on photographs, with its folder and the end of this call."""

    piece: Piece
    data: Mapping[str, Any]
    root: Path
    folder: Path
    ends: float

    def train(self, system: System, seed: int, **changes: Any) -> dict[str, float]:
        """Returns the metrics of a training. Resumes or reads a training that has begun.

        Raises OutOfTimeError when the minutes are over, with a checkpoint.
        """
        spec = self.piece.spec(system, self.data, **changes).model_copy(update={"seed": seed})
        record = self._record(system, seed, **changes)
        folder, begin = record.parent, monotonic()
        asked, given = folder / "spec.json", _without_paths(spec)
        if record.is_file():
            if asked.is_file() and asked.read_text(encoding="utf-8") != given:
                raise SpecError(f"{folder} has a training of another spec; give another --root")
            return _read(record)
        if begin > self.ends:
            raise OutOfTimeError
        dataset, device = self.dataset(spec), choose_device(spec)
        trainer = Trainer(
            spec, dataset, folder, device=device, should_stop=lambda: monotonic() > self.ends
        )
        if damage := trainer.resume():
            say(damage)
        try:
            for progress in trainer:
                say(f"{system.title}, seed {seed}: epoch {progress.epoch} of {spec.train.epochs}")
        except DivergedError as error:  # has no result, and the others go on
            say(f"{system.title}, seed {seed}: {error}")
            lost = {DIVERGED: 1.0, "seconds_per_epoch": 0.0}
            record.write_text(json.dumps(lost), encoding="utf-8")
            return lost
        if not trainer.done or trainer.last is None:
            raise OutOfTimeError
        found = dict(trainer.last.metrics)
        # Too short for a resumed training, and for a training without epochs.
        found["seconds_per_epoch"] = (monotonic() - begin) / spec.train.epochs
        if seed:
            begin = monotonic()
            found |= trainer.report() | self.retrieve(trainer, folder)
            found["seconds_of_test"] = monotonic() - begin
        asked.write_text(given, encoding="utf-8")
        record.write_text(json.dumps(found, indent=1), encoding="utf-8")
        for file in folder.glob("last*.pt"):
            file.unlink()
        say(self.estimate())
        return found

    def _record(self, system: System, seed: int, **changes: Any) -> Path:
        tuned = "" if seed else f"-lr-{changes['lr']:g}"
        name = f"{slug(system)}-seed-{seed}{tuned}"
        return self.folder / "trainings" / name / "metrics.json"

    def dataset(self, spec: RunSpec) -> Dataset:
        """Returns the data set, with images decoded once for all trainings."""
        store = cache_folder(self.root)
        return open_dataset(spec.data, view_size=spec.views.size, store=store)

    def retrieve(self, trainer: Trainer, folder: Path) -> dict[str, float]:
        """Returns the retrieval metrics on test; writes each query's metrics to retrieval.npz."""
        table, rows = trainer.dataset.table, trainer.dataset.table.rows("test")
        arrays, means = {}, {}
        labels = {label: torch.from_numpy(table.labels[label][rows]) for label in LABELS}
        for space, z_nD in spaces(trainer, rows).items():
            for label, found in retrieval(z_nD, labels).items():
                known = table.known(label)[rows]
                for shown, name in (("recall@1", "recall_at_1"), ("map@r", "map_at_r")):
                    # In half of the space, for an archive that is carried to other machines.
                    arrays[f"{space}|{label}|{shown}"] = found[name].float().numpy()[known]
                    means[f"{shown}/{label}/{space}"] = found[name].nanmean().item()
                arrays[f"{label}|rows"] = rows[known]
                arrays[f"{label}|truth"] = table.labels[label][rows[known]]
                for groups in table.groups.values():  # one at most
                    arrays[f"{label}|groups"] = groups[rows[known]]
        np.savez(folder / "retrieval.npz", allow_pickle=False, **arrays)
        return means

    def best_rate(self, system: System) -> float:
        """Returns the best of the family's rates on val, after short trainings with seed 0.

        A network of one task is tuned by the accuracy of this task.
        """
        if system.tuned_as:
            (other,) = (each for each in self.piece.systems if each.title == system.tuned_as)
            return system.rate * self.best_rate(other)
        rates, epochs = RATES[system.family], self.piece.tuning_epochs
        if len(rates) == 1:
            return rates[0]
        task = system.changes["method"].get("task")
        goal = metrics.score("classes", "val", task) if task else metrics.MEAN_ACCURACY
        short = partial(self.train, system, 0, epochs=epochs)
        return max(rates, key=lambda lr: short(lr=lr).get(goal, -math.inf))

    def train_all(self) -> bool:
        """Trains each seed of all systems before the next seed. Returns False if time ran out."""
        try:
            for seed in range(1, self.piece.seeds + 1):
                for system in self.piece.systems:
                    self.train(system, seed, lr=self.best_rate(system))
        except OutOfTimeError:
            return False
        return True

    def finished(self) -> dict[tuple[str, int], dict[str, float]]:
        """Returns the metrics of the finished trainings with seeds above 0, by title and seed."""
        return {
            (system.title, seed): _read(record)
            for seed in range(1, self.piece.seeds + 1)
            for system in self.piece.systems
            if (record := self._record(system, seed)).is_file() and DIVERGED not in _read(record)
        }

    def estimate(self) -> str:
        """Returns the missing trainings, with tuning, and their time if it is known."""
        epochs_of = {
            self._record(s, seed): self.piece.epochs_of(s)
            for s in self.piece.systems
            for seed in range(1, self.piece.seeds + 1)
        }
        tested = [*epochs_of]
        tuned = [s for s in self.piece.systems if len(RATES[s.family]) > 1 and not s.tuned_as]
        short = [self._record(s, 0, lr=lr) for s in tuned for lr in RATES[s.family]]
        epochs_of |= dict.fromkeys(short, self.piece.tuning_epochs)
        done = {record: _read(record) for record in epochs_of if record.is_file()}
        epochs = sum(number for record, number in epochs_of.items() if record not in done)
        timed = [r for r in done if epochs_of[r] and done[r]["seconds_per_epoch"]]
        spent = sum(done[r]["seconds_per_epoch"] * epochs_of[r] for r in timed)
        tests = [m["seconds_of_test"] for m in done.values() if "seconds_of_test" in m]
        left = sum(r not in done for r in tested) * (fmean(tests) if tests else 0.0)
        left += epochs * spent / max(1, sum(epochs_of[r] for r in timed))
        time = f"about {left / 60:.0f} min" if timed else "time unknown"
        return f"{len(done)} of {len(epochs_of)} trained; {epochs:,} epochs left, {time}"

    def scores(
        self, system: str, space: str, label: str, beside: str | None = None
    ) -> Scores | None:
        """Returns the system's scores of all seeds: MAP@R in a space, accuracy for PROBE.

        With `beside`, another system, of the seeds that both have.
        """
        done = self.finished()
        (trained,) = (each for each in self.piece.systems if each.title == system)
        folders = {
            seed: self._record(trained, seed).parent
            for title, seed in done
            if title == system and (beside or title, seed) in done
        }
        if space == PROBE:
            split = "heldout" if label in HELD_OUT else "test"
            known = {s: load_predictions(f / PREDICTIONS_FILE) for s, f in folders.items()}
            read = {s: p[split, label] for s, p in known.items() if p}
            return resampled_scores(read) if read else None
        by_seed: dict[int, np.ndarray] = {}
        shared: dict[str, np.ndarray] = {}
        for seed, folder in folders.items():
            with np.load(folder / "retrieval.npz", allow_pickle=False) as file:
                if f"{space}|{label}|map@r" in file:
                    by_seed[seed] = file[f"{space}|{label}|map@r"]
                    parts = ("rows", "truth", "groups")
                    found = {part: f"{label}|{part}" for part in parts}
                    shared = {part: file[name] for part, name in found.items() if name in file}
        return query_scores(by_seed, **shared) if by_seed else None


def slug(system: System) -> str:
    """Returns the system's part of the name of its folders."""
    return "".join(c if c.isalnum() else "-" for c in system.title.lower())


def _without_paths(spec: RunSpec) -> str:
    """Returns the spec as JSON without the places of the photographs, which a call may change."""
    raw = dump_spec(spec)
    raw["data"] |= {"csv": None, "images": None}
    return json.dumps(raw)


def _read(record: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads(record.read_text(encoding="utf-8"))
    return found
