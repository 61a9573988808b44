"""Tests of the pieces: small trainings that are cut and continued, and claims."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from experiments.lite0_weights import MODEL, main as convert
from experiments.pieces import COMMAND, PIECES, picture, with_missing_labels
from experiments.reproduction.piece_tables import tested as all_tested, write
from experiments.reproduction.pieces import LABELS, PROBE, Piece, Run, System
from experiments.reproduction.retrieval import ENCODER, query_scores
from experiments.reproduction.trends import combined, difference_tested
from mtcon_ray.errors import DivergedError, SpecError
from mtcon_ray.training.trainer import Trainer
from tests.processes import run_python
from tests.some import some
from tests.tables import write_table

TINY = {
    "model.encoder": {"name": "small", "width": 8}, "model.head_dim": 8, "views.size": 16,
    "train.batch_size": 16, "train.warmup_epochs": 0, "evaluate.bootstrap": 10,
}  # fmt: skip


@pytest.fixture
def photos(tmp_path: Path) -> Mapping[str, Any]:
    """Returns the data of 120 images of noise, with the labels of the shoes."""
    draw = np.random.default_rng(0)
    labels = {label: [f"{label}{i}" for i in draw.integers(2, size=120)] for label in LABELS}
    labels["group_id"] = [f"{i // 2}" for i in range(120)]
    write_table(tmp_path, split=["train"] * 72 + ["val"] * 16 + ["test"] * 32, **labels)
    csv, images = str(tmp_path / "labels.csv"), str(tmp_path / "images")
    columns = {"split_column": "split", "group_column": "group_id"}
    return {"kind": "table", "csv": csv, "images": images, **columns}


def test_a_call_without_time_trains_nothing_and_the_next_continues(
    photos: Mapping[str, Any], tmp_path: Path
) -> None:
    """Small trainings of the first systems of a piece, with their claims."""
    piece = PIECES["headline"]
    systems = piece.systems[:4]
    known = {system.title for system in systems}
    claims = tuple(c for c in piece.claims if {c.better[0], c.than[0]} <= known)
    base = {**piece.base, **TINY}
    small = Piece(systems, claims, epochs=1, tuning_epochs=1, seeds=3, base=base)
    cut = Run(small, photos, tmp_path, tmp_path / "pieces" / "headline", -inf)
    assert not cut.train_all()
    assert cut.finished() == {}
    run = replace(cut, ends=inf)
    assert run.train_all()
    assert len(run.finished()) == 12
    assert run.estimate() == "24 of 24 trained; 0 epochs left, about 0 min"
    assert replace(run, ends=-inf).train_all()  # nothing is trained again
    other = replace(small, base={**base, "train.batch_size": 8})
    with pytest.raises(SpecError, match="a training of another spec; give another --root"):
        replace(run, piece=other).train_all()
    sides = [run.scores(*side, claims[-1].label) for side in (claims[-1].better, claims[-1].than)]
    alone = difference_tested("", combined(lambda s: s[0] - s[1], sides))
    assert some(all_tested(run)[-1].error).value > some(alone.error).value, "they share it"
    write(run)
    written = pd.read_csv(run.folder / "claims.csv", keep_default_na=False)
    assert len(written) == len(claims) > 0
    assert set(written["verdict"]) <= {"holds", "does not hold", "undecided"}
    assert written["claim"].str.contains("head gender").any()
    results = pd.read_csv(run.folder / "results.csv")
    assert {"test/accuracy/gender", "map@r/gender/encoder"} <= set(results["metric"])
    for space in (PROBE, ENCODER):
        scores = run.scores(systems[0].title, space, "gender")
        assert len(np.unique(some(some(scores).groups))) == 16  # two items each
    with patch.object(Trainer, "__iter__", side_effect=DivergedError("loss is nan")):
        run._record(systems[0], 3).unlink()
        assert run.train_all(), "the others go on"
    assert len(run.finished()) == 11
    assert None not in {each.difference for each in all_tested(run)}, "on the seeds of both"


@pytest.mark.slow
@pytest.mark.parametrize("name", PIECES)
def test_a_piece_trains(
    name: str, photos: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two systems of a piece, with a small encoder and without a choice of the rate."""
    monkeypatch.setattr("experiments.reproduction.pieces.RATES", {"contrastive": [1], "xent": [1]})
    piece = PIECES[name]
    base = {**piece.base, **TINY, "train.batch_size": 8}
    small = Piece(piece.systems[:2], (), epochs=1, tuning_epochs=1, seeds=1, base=base)
    run = Run(small, photos, tmp_path, tmp_path / "pieces" / name, inf)
    assert run.train_all()
    results = pd.read_csv(write(run).parent / name / "results.csv")
    assert "map@r/gender/encoder" in set(results["metric"])
    assert picture(run).startswith(b"\x89PNG")


def test_a_piece_needs_neither_ray_nor_mlflow_nor_optuna() -> None:
    lacking = "import sys; sys.modules.update(dict.fromkeys(['ray', 'mlflow', 'optuna']))"
    run_python("-c", f"{lacking}; import experiments.pieces")


def test_an_estimate_has_the_epochs_of_each_system(tmp_path: Path) -> None:
    run = Run(PIECES["grids"], {}, tmp_path, tmp_path / "grids", inf)
    lengths = [s.changes.get("train.epochs", run.piece.epochs) for s in run.piece.systems]
    assert len({*lengths}) > 2
    short = run.piece.tuning_epochs * 3 * sum(not s.tuned_as for s in run.piece.systems)
    assert f"; {3 * sum(lengths) + short:,} epochs left, time unknown" in run.estimate()


def test_a_network_of_one_task_is_tuned_by_it(
    photos: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(run: Run, system: System, seed: int, lr: float, epochs: int) -> dict[str, float]:
        return {"val/accuracy": lr, **{f"val/accuracy/{label}": -lr for label in LABELS}}

    monkeypatch.setattr(Run, "train", trained)
    run = Run(PIECES["headline"], photos, tmp_path, tmp_path, inf)
    rates = {system.title: run.best_rate(system) for system in run.piece.systems}
    assert (rates["XEnt multi-task"], rates["XEnt on gender"]) == (0.1125, 0.0125)


def test_the_converted_tensors_are_those_of_timm(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="the extra timm is not installed")
    state = timm.create_model(MODEL, pretrained=False).state_dict()
    torch.save({f"a.{name}": value for name, value in state.items()}, tmp_path / "a.pth")
    convert([str(tmp_path / "a.pth"), str(tmp_path / "a.safetensors")], standalone_mode=False)
    made = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(value, state[name]) for name, value in made.items())


@pytest.mark.slow
def test_the_command_measures_what_is_not_trained(
    photos: Mapping[str, Any], tmp_path: Path
) -> None:
    shoes = tmp_path / "photos" / "fashion_shoes"
    shutil.make_archive(str(shoes / "images"), "gztar", photos["images"])
    shutil.copy(photos["csv"], shoes)
    given = ["--photos", str(shoes.parent), "--root", str(tmp_path / "root"), "--epochs", "8"]
    with pytest.raises(SystemExit, match=r"^2$"):
        COMMAND(["imagenet", *given])  # without weights
    with pytest.raises(SystemExit, match=r"^0$"):
        COMMAND(["retrieval", *given, "--frozen", "--seeds", "1"])
    folder = tmp_path / "root" / "pieces" / "retrieval-8-epochs"
    found = pd.read_csv(folder / "results.csv")
    assert {*found["system"]} == {"Untrained encoder", "Handcrafted features"}
    assert {*found["seed"]} == {1}
    assert (folder / "systems.png").read_bytes().startswith(b"\x89PNG")


def test_queries_of_a_group_are_drawn_together() -> None:
    rows, groups = np.arange(4), np.array([0, 0, 1, 1])
    found = query_scores({0: np.array([1.0, 1.0, 0.0, 0.0])}, rows, rows, groups)
    assert {*found.drawn_SK.ravel()} == {0.0, 0.5, 1.0}
    assert some(found.groups).tolist() == groups.tolist()


def test_half_of_the_train_labels_are_missing(photos: Mapping[str, Any], tmp_path: Path) -> None:
    before = pd.read_csv(photos["csv"])
    after = pd.read_csv(with_missing_labels(Path(photos["csv"]), tmp_path / "half" / "labels.csv"))
    is_train = before["split"] == "train"
    assert 0.3 < after.loc[is_train, ["category", "gender", "colour"]].isna().mean().mean() < 0.7
    after = after.where(after.notna(), before)
    pd.testing.assert_frame_equal(after, before)
    assert not pd.read_csv(tmp_path / "half" / "labels.csv")[~is_train].isna().any().any()


def test_every_system_of_every_piece_has_a_valid_spec(photos: Mapping[str, Any]) -> None:
    for piece in PIECES.values():
        titles = [system.title for system in piece.systems]
        assert len(set(titles)) == len(titles)
        assert {side[0] for c in piece.claims for side in (c.better, c.than)} <= set(titles)
        for system in piece.systems:
            assert piece.spec(system, photos, lr=0.1).train.lr == 0.1
