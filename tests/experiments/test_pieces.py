"""Tests of the pieces: small trainings that are cut and continued, and claims."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.pieces import PIECES, picture, with_missing_labels
from experiments.reproduction.pieces import LABELS, Piece, Run, write
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
    write_table(tmp_path, split=["train"] * 40 + ["val"] * 40 + ["test"] * 40, **labels)
    csv, images = str(tmp_path / "labels.csv"), str(tmp_path / "images")
    return {"kind": "table", "csv": csv, "images": images, "split_column": "split"}


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
    write(run)
    written = pd.read_csv(run.folder / "claims.csv", keep_default_na=False)
    assert len(written) == len(claims) > 0
    assert set(written["verdict"]) <= {"holds", "does not hold", "undecided"}
    assert written["claim"].str.contains("head gender").any()
    results = pd.read_csv(run.folder / "results.csv")
    assert {"test/accuracy/gender", "map@r/gender/encoder"} <= set(results["metric"])


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
