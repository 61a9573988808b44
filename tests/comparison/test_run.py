"""A comparison on a real Ray: each system is trained once, also after a repetition or a failure."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.comparison.run import run_comparison
from mtcon_ray.comparison.spec import load_comparison
from mtcon_ray.folder import claimed
from mtcon_ray.tracking.event_log import EventLog

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]


def test_systems_are_trained_once_and_a_failure_is_told(tmp_path: Path) -> None:
    path = tmp_path / "few.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "few",
                "base": {
                    "data": {"kind": "synthetic", "num_items": 120},
                    "views": {"size": 16},
                    "model": {"encoder": {"name": "small", "width": 4}},
                    "train": {"epochs": 2, "batch_size": 16},
                    "evaluate": {"bootstrap": 20},
                    "tracking": {"offline": True},
                    # one process for trials, since each takes seconds to start
                    "resources": {"cpus": 2},
                },
                "systems": {
                    "good": {"method": {"name": "mtcon"}, "seeds": 2},
                    "wild": {
                        "method": {"name": "mtcon"},
                        "changes": {
                            "train.lr": 1000.0,
                            "train.weight_decay": 1.0,
                            "train.warmup_epochs": 0,
                            "train.epochs": 8,
                        },
                    },
                },
            }
        )
    )
    comparison, watched = load_comparison(path), []

    def watch(title: str) -> nullcontext[Callbacks]:
        watched.append(title)
        return nullcontext(Callbacks())

    root = tmp_path / "root"
    rows, folder = run_comparison(comparison, root=root, watch=watch)
    good, wild = rows
    assert [t.seed for t in good.finished] == [0, 1]
    assert not wild.finished
    assert "| good | 2 | 32 | 0." in (folder / "table.md").read_text()
    wild_line = (folder / "table.md").read_text().splitlines()[3]
    assert wild_line.startswith("| wild | 0 | — | failed: ")
    assert "be finite, got inf or nan" in wild_line
    spool = root / "sweeps" / "few-good" / "spool" / "trial-0000.jsonl"
    events = EventLog.read(spool)
    with claimed(root / "sweeps" / "few-wild"):  # as if another process resumed it
        again, _ = run_comparison(comparison, root=root, watch=watch)
    assert watched == ["good", "wild", "wild"]
    assert again[0].finished == good.finished
    assert EventLog.read(spool) == events
    assert "must have one driver at a time" in again[1].why
