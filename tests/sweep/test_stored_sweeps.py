"""Whole sweeps with a root in an object store, in this process."""

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
import yaml

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.lock import driver_lock
from mtcon_ray.base.paths import choose_root, stored_url, sweep_folder
from mtcon_ray.base.status import Status
from mtcon_ray.data import objects
from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import MtconError, PreemptedError, SweepError
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.records.claim import Claim
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.records.stored import fetch_trials
from mtcon_ray.spec.encoders import SmallSpec
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.audit import Audit
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.sweep.trial import Assignment
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.training import uploads
from tests import specs
from tests.cli.conftest import accepted, refused
from tests.data.conftest import TableFiles
from tests.data.folder_store import FolderStore, folder_store
from tests.some import some
from tests.sweep.small_sweeps import assert_whole, fetched

URL = "s3://bucket/lab"
EPOCHS = 4


class KilledError(BaseException):
    """End of the driver's process."""


SpecOf = Callable[..., RunSpec]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder_store(tmp_path / "store", monkeypatch)


@pytest.fixture
def spec_of(tmp_path: Path) -> SpecOf:
    """Returns a function that returns the spec of a sweep on a machine, with weights of a file."""
    data = tmp_path / "data"
    data.mkdir()
    table = TableFiles(data).spec().model_dump(mode="json")
    torch.save(Small(SmallSpec(width=4)).state_dict(), data / "weights.pt")

    def spec_of(machine: str = "one", **changes: Any) -> RunSpec:
        encoder = {"name": "small", "width": 4, "weights": str(data / "weights.pt")}
        raw = {
            **specs.TINY,
            "name": "shoes",
            "data": table,
            "model": {"encoder": encoder, "head_dim": 8},
            "train": {"epochs": EPOCHS, "batch_size": 4, "checkpoint_seconds": 0},
            "evaluate": {"bootstrap": 10, "select": "best"},
            "tracking": {"offline": True, "system_metrics": False},
            "storage": {"local": str(tmp_path / machine)},
            "search": {"space": {"method.temperature": {"grid": [0.1, 0.5]}}, "sampler": "grid"},
        }
        return parse_spec(raw | changes)

    return spec_of


def run(spec: RunSpec, callbacks: Callbacks | None = None, **options: Any) -> SweepResults:
    root = options.pop("root", None) or choose_root(URL, spec.storage.local)
    options = dict[str, Any](name="shoes-1", here=True) | options
    return run_sweep(spec, root=root, callbacks=callbacks or Callbacks(), **options)


def metrics(results: SweepResults) -> list[Any]:
    """Returns what does not depend on the machine or the clock."""
    quiet = ("second", "images", "memory")
    return [
        (t.status, t.params, [
            (epoch, {n: v for n, v in each.items() if not any(w in n for w in quiet)})
            for epoch, each in t.reports
        ])
        for t in results.trials
    ]  # fmt: skip


def test_a_sweep_goes_on_without_disk(store: FolderStore, spec_of: SpecOf, tmp_path: Path) -> None:
    """It goes on elsewhere, without its disk and its data."""
    whole = run(spec_of(), root=tmp_path / "path")
    first, second = Mock(Callbacks), Mock(Callbacks)
    first.on_report.side_effect = [*[None] * (EPOCHS + 1), KilledError]
    with pytest.raises(KilledError):
        run(spec_of(), first)
    assert first.on_decode.call_args.args == (20, 20)
    assert "s3://bucket/lab/sweeps/shoes-1" in str(first.on_note.call_args_list)
    for lost in ("one", "data", "path/store"):
        shutil.rmtree(tmp_path / lost)
    ended = run(spec_of("two"), second, resume=True)
    second.on_decode.assert_not_called()
    assert metrics(ended) == metrics(whole)
    assert ended.winner is not None
    names = {name.removeprefix("bucket/lab/sweeps/shoes-1/") for name in store.names()}
    kept = {name.split("-")[0] for name in names if name.startswith("checkpoints/trial-")}
    assert kept == {"checkpoints/trial"}
    assert not any("/last-" in name for name in names), "resume states of ended trials are removed"
    assert sum(name.startswith("log/") for name in names) == 1
    assert_whole(fetched(URL, tmp_path / "three", "shoes-1"), 2, EPOCHS)


def test_a_resume_prepares_further_values_of_data_fields(spec_of: SpecOf) -> None:
    def searched(*sizes: int) -> RunSpec:
        return spec_of(search={"space": {"views.size": {"grid": [*sizes]}}, "sampler": "grid"})

    run(searched(8))
    found = [(t.params["views.size"], t.status) for t in run(searched(8, 12), resume=True).trials]
    assert found == [(8, Status.FINISHED), (12, Status.FINISHED)]


def test_a_trial_ends_when_the_store_has_its_network(
    store: FolderStore, spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(objects, "RETRY_SECONDS", 0.01)
    refused = store.refuse("PUT", f"-{EPOCHS:09d}.pt", times=3)
    run(spec_of(evaluate={"bootstrap": 10}, search={}))
    assert len(refused) == 3
    kept = {name.split("/")[-2] for name in store.names() if f"-{EPOCHS:09d}.pt" in name}
    assert kept == {"trial-0000"}


def test_a_taken_sweep_stops_its_driver(spec_of: SpecOf, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAG_SECONDS", "RENEW_SECONDS"):
        monkeypatch.setattr(objects, name, 0.05)
    begin = Mock(side_effect=Lifecycle.begin)
    monkeypatch.setattr(Lifecycle, "begin", lambda self, plan: begin(self, plan))

    def take(*_: Any) -> None:
        Objects(f"{URL}/sweeps/shoes-1").write(f"claims/000009-{'0' * 32}", b"another")
        time.sleep(0.3)

    long = {"epochs": 500, "batch_size": 4}
    with pytest.raises(MtconError, match="another driver has taken over shoes-1"):
        run(spec_of(train=long, search={}), Mock(Callbacks, on_report=take))
    assert begin.call_args.args[0].sender.limit() == -1, "MLflow gets nothing more"
    work = Assignment("trial-0000", spec_of(), sweep_folder(choose_root(URL), "shoes-1"), driver=8)
    with pytest.raises(PreemptedError, match="a later driver has taken over the sweep"):
        work.check_claim()
    replace(work, driver=9).check_claim()


def test_commands_begin_continue_read_and_remove_a_sweep_in_a_store(
    store: FolderStore, spec_of: SpecOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is begun by --continue, as a service does. The store has the networks that are kept."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = tmp_path / "spec.yaml"
    spec = with_values(spec_of(), {"storage.root": URL, "storage.keep": 1})
    path.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    here = f"{URL}/sweeps/shoes-1"
    words = ("sweep", str(path), "--name", "shoes-1", "--continue", "--here")
    assert "shoes-1 ended" in accepted(*words).output
    for again in (words, ("resume", here)):
        assert "shoes-1 has ended already" in accepted(*again).output
    root = choose_root(URL, spec.storage.local)
    with patch("mtcon_ray.cli.job_commands.run", return_value=0) as resumed:
        accepted("resume", here)
    assert resumed.call_args.args[1] == root
    folder = sweep_folder(root, "shoes-1")
    with driver_lock(folder), patch("mtcon_ray.cli.job_commands._stop_here") as stopped:
        accepted("stop", here)
    assert stopped.call_args.args == (folder,)
    winner = load_sweep(folder).required_winner().name
    (kept,) = (name for name in store.names() if "/model-" in name)
    assert winner in kept
    assert sum(name.endswith("/removed.txt") for name in store.names()) == 1
    log = (folder / "events.jsonl").read_text()
    assert f'"path": "s3://{kept}"' in log
    assert '"to": "report"' in log

    def called(*words: str) -> str:
        store.requests.clear()
        told = accepted(*words).output
        if words[0] in ("list", "status", "best"):
            assert len(store.asked("GET")) == 1 or "nothing" in told
            assert len(store.requests) <= 2
        return told

    assert re.search("shoes-1 .* —  +finished  2/2", called("list", "--root", URL))
    for name in ([here], [f"{URL}/shoes-1"], ["shoes-1", "--root", URL]):
        assert "shoes-1: finished" in called("status", *name)
    assert "+0.000 [+0.000, +0.000]¹" in accepted("status", here, here).output
    best = json.loads(called("best", here, "--json"))
    assert (best["trial"], best["checkpoint"]) == (winner, f"{here}/checkpoints/{winner}/")
    assert Path(called("report", here).strip()).is_file()
    assert "all records agree" in called("audit", here)
    assert "2 trials exported" in called("export", here, "--to", "optuna")
    assert f" in {here}\n" in called("clean", here)
    claim = Claim(Objects(here), "shoes-1", take_over=False)
    with patch("mtcon_ray.records.claim.time.time_ns", return_value=2**62):  # a wrong clock here
        assert "is already running, driven by" in refused("clean", here, "--yes")
    claim.end()
    with patch("mtcon_ray.cli.admin_commands.remove_runs", side_effect=SweepError("no MLflow")):
        assert "no MLflow" in refused("clean", here, "--mlflow", "--yes")
    called("clean", here, "--yes")
    assert not any("sweeps/shoes-1" in name for name in store.names())
    assert "nothing under s3://bucket/lab yet" in called("list", "--root", URL)


def test_a_search_of_data_is_prepared_for_all_nodes(store: FolderStore, spec_of: SpecOf) -> None:
    space = {"data.label_noise.kind": {"grid": [0.5, 0.9]}, "views.size": {"choice": [16, 18]}}
    ended = run(spec_of(search={"space": space, "sampler": "random", "num_trials": 3}))
    assert [trial.status for trial in ended.trials] == ["FINISHED"] * 3
    assert sum(name.endswith("labels.npz") for name in store.names()) == 5
    Objects(f"{some(stored_url(ended.folder))}/checkpoints").write("notes.txt", b"")
    fetch_trials(ended.folder, uploads.NETWORKS)
    assert [*Audit(ended.folder).files()] == []
    more = spec_of(search={"space": space, "sampler": "random", "num_trials": 4})
    asked = Mock(side_effect=SweepError("changed"))
    refused = pytest.raises(SweepError, match="changed")
    with patch("mtcon_ray.sweep.run.changed_since_start", asked), refused:
        run(more, resume=True)
    assert len(asked.call_args.args[2]) == 5
