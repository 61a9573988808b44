"""Tests of bad input at the command line: exit code, one message, no partial files."""

import re
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from mtcon_ray.tracking.mlflow_server import check_server
from tests.cli.conftest import run
from tests.tables import write_table

SPEC = """
version: 1
name: shop
data: {kind: table, csv: labels.csv, images: images, tasks: [colour, shape], held_out: [maker]}
views: {size: 16}
model: {encoder: {name: small, width: 4}, head_dim: 8}
train: {epochs: 2, warmup_epochs: 0, batch_size: 8}
evaluate: {bootstrap: 20}
tracking: {offline: true}
storage: {root: output}
search: {space: {method.temperature: {grid: [0.1, 0.5]}}, sampler: grid}
"""
# Files that a refused command may leave in the root: a complete image store, its locks and keys.
WHOLE = r"output|output/store(/keys(/\w+\.\w+)?|/\w{32}(\.lock|/(images\.npy|\w+\.json))?)?"
PLAN, SWEEP = (pytest.param(name, marks=pytest.mark.ray) for name in ("plan", "sweep"))
COMMANDS = ["validate", "train", PLAN, SWEEP]


@dataclass
class Shop:
    """A user's folder with 120 images, their labels and a spec; `output` is the root."""

    folder: Path

    def refuses(self, command: str, *settings: str, says: tuple[str, ...], code: int = 2) -> None:
        """Runs a command that must fail with one message and leave all files unchanged."""
        overrides = [word for setting in settings for word in ("--set", setting)]
        kept = self.everything()
        result = run(command, self.folder / "shop.yaml", *overrides)
        assert result.exit_code == code, result.output
        assert re.match(r"error: \S", result.stderr), result.stderr
        assert result.stderr.count("error: ") == 1
        assert not re.search("unexpected|Traceback", result.output)
        assert len(result.stderr) < 1500
        begun = r"(\[ \d:\d\d\] (starting|preparing: .*|decoding images: .*)\n)*"
        assert re.fullmatch(begun, result.stdout)
        for part in says:
            assert part in result.stderr
        assert self.everything() == kept
        assert not (self.folder.parent / "home" / "mtcon-ray").exists()

    def everything(self) -> dict[str, bytes]:
        """Returns the content of all files but those of WHOLE, by path; folders have b""."""
        found = {}
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if not re.fullmatch(WHOLE, name):
                found[name] = path.read_bytes() if path.is_file() else b""
        return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Returns a folder with a valid spec, table and images."""
    folder = tmp_path / "shop"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    split = ["train"] * 3 + ["val", "test"]
    write_table(folder, split=split, colour=["red", "blue"], shape="aab", maker="cd")
    (folder / "shop.yaml").write_text(SPEC)
    return Shop(folder)


def test_the_shop_itself_is_valid(shop: Shop) -> None:
    """Without changes nothing is refused, so that the tests below fail for their own reasons."""
    assert run("validate", shop.folder / "shop.yaml").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_spec_that_breaks_a_rule_is_refused(shop: Shop, command: str) -> None:
    says = ("shop.yaml", "method.temperatur: unknown key", "'temperature'?")
    shop.refuses(command, "method.temperatur=1", says=says)
    assert not (shop.folder / "output").exists()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"colour": None}, ("labels.csv", "'colour'", "'color'?")),
        ({"maker": ""}, ("'maker'", "must have labels", "only empty cells")),
    ],
    ids=["column", "no labels"],
)
def test_unusable_labels_are_refused(shop: Shop, command: str, change: Any, says: Any) -> None:
    csv = shop.folder / "labels.csv"
    table = pd.read_csv(csv)
    table = table.assign(color=table["colour"], **change).dropna(axis="columns")
    table.to_csv(csv, index=False)
    shop.refuses(command, says=says)


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_images_are_told_with_the_likely_cause(shop: Shop, command: str) -> None:
    for name in ("7.png", "9.png"):
        (shop.folder / "images" / name).unlink()
    says = ("1.00%", "data.max_bad_images", "2 of 120", "row 9, 7.png: no such")
    shop.refuses(command, says=says)


@pytest.mark.mlflow
@pytest.mark.parametrize("command", ["train", SWEEP])
def test_a_tracking_server_that_nobody_answers_for_is_exit_1(shop: Shop, command: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    says = (uri, "does not answer", "refused", "tracking.offline")
    shop.refuses(command, "tracking.offline=false", f"tracking.uri={uri}", code=1, says=says)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_small_disk_is_refused(shop: Shop, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    says = (f"the disk of {shop.folder}/output", "GB free", "has 1e-05 GB", "data.store_size")
    shop.refuses(command, says=says)


@pytest.mark.mlflow
def test_a_tracking_database_cut_while_it_was_made_is_made_anew(tmp_path: Path) -> None:
    """A partial database file is replaced. MLflow itself fails with `table ... already exists`."""
    (tmp_path / "mlflow.db.building").write_bytes(b"cut")
    check_server(f"sqlite:///{tmp_path}/mlflow.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow.db", "mlflow.db.lock"]
