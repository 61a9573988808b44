"""The commands list, status, best, train and export on the contents of a root."""

import io
import json
import re
import shutil
from base64 import b64decode
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import optuna
import pandas as pd
import pytest
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from PIL import Image

from mtcon_ray.base.lock import driver_lock
from mtcon_ray.base.paths import choose_root, event_file
from mtcon_ray.display import build
from mtcon_ray.display.presentation import csv_text
from mtcon_ray.errors import SweepError
from mtcon_ray.records.events import Ended, Reopened, Reported, Started
from mtcon_ray.records.results import load_sweep
from tests.cli.conftest import SPEC, Invoke, accepted, refused, run
from tests.recorded import plan_with
from tests.run_log import RunLog


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    """Returns a function that runs a command with a temporary root."""
    return lambda *words: run(*words, "--root", tmp_path)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Writes a sweep with one trial finished, one stopped early at a higher value, one failed."""
    folder = tmp_path / "sweeps" / "tiny-1"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (folder / "plan.json").write_text(plan_with(num_trials=3).model_dump_json())
    RunLog(folder).append(Started(params={}, tags={}))
    first, second, third = logs = [RunLog(folder, f"trial-{i:04d}") for i in range(3)]
    for log, temperature in zip(logs, (0.1, 0.5, 1.0), strict=True):
        tags = {"mtcon.epochs": "2", "mtcon.seed": "0"}
        log.append(Started(params={"method.temperature": temperature}, tags=tags))
    first.append(Reported(epoch=1, metrics={"val/accuracy": 0.3}))
    first.append(Reported(epoch=2, metrics={"val/accuracy": 0.4}))
    first.append(Ended(status="FINISHED", tags={}))
    second.append(Reported(epoch=1, metrics={"val/accuracy": 0.9}))
    second.append(Ended(status="KILLED", tags={"mtcon.pruned": "true"}))
    third.append(Ended(status="FAILED", tags={"mtcon.reason": "Diverged: loss is nan"}))
    return folder


def test_list_names_state_and_winner(invoke: Invoke, sweep: Path) -> None:
    network = sweep / "checkpoints" / "trial-0000" / "model.pt"
    network.parent.mkdir(parents=True)
    network.write_bytes(bytes(10_000_000))
    (overview,) = json.loads(invoke("list", "--json").stdout)
    assert overview.pop("began")[:2] == "20"
    record = sum(file.stat().st_size for file in sweep.iterdir() if file.is_file())
    assert overview.pop("bytes") == 10_000_000 + record
    assert overview == {
        "name": "tiny-1", "data": "synthetic", "metric": "val/accuracy", "state": "stopped",
        "num_done": 3, "num_trials": 3, "value": 0.4, "params": {"method.temperature": 0.1},
    }  # fmt: skip
    assert re.search("synthetic +10MB .* val/accuracy .* temperature=0.1", invoke("list").stdout)


def test_list_reads_again_only_what_has_changed(invoke: Invoke, sweep: Path) -> None:
    def listed(load: Any = load_sweep) -> dict[str, Any]:
        with patch("mtcon_ray.cli.result_commands.load_sweep", side_effect=load):
            (overview,) = json.loads(invoke("list", "--json").stdout)
            return dict(overview)

    cache = sweep.parents[1] / "store" / "list.json"
    assert listed()
    cache.mkdir(parents=True)  # the command has not made it
    assert listed() == listed(), "a folder is no cache"
    cache.rmdir()
    assert listed(OSError("busy"))["state"] == "unreadable: busy"
    first = listed()
    assert listed(AssertionError) == first
    cache.write_text('{"tiny-1": ["", {"name": "x"}]}')
    assert listed() == first
    RunLog(sweep).append(Ended(status="FINISHED", tags={}))
    assert listed()["state"] == "finished"
    for state in ("running", "running", "finished"):
        with driver_lock(sweep) if state == "running" else nullcontext():
            assert listed()["state"] == state


def test_state_follows_driver_and_record(invoke: Invoke, sweep: Path) -> None:
    def state() -> str:
        return str(json.loads(invoke("status", "tiny-1", "--json").stdout)["state"])

    with driver_lock(sweep):
        assert state() == "running"
        assert invoke("clean", "tiny-1", "--yes").exit_code == 2
    assert state() == "stopped"
    RunLog(sweep).append(Ended(status="KILLED", tags={}))
    assert state() == "interrupted"
    RunLog(sweep).append(Reopened())
    assert state() == "stopped"


def test_status_ranks_and_says_how_to_go_on(invoke: Invoke, sweep: Path) -> None:
    lines = invoke("status", "tiny-1").stdout.splitlines()
    assert lines[0] == "tiny-1: stopped, 3 of 3 trials started"
    assert [line.split()[1] for line in lines[2:5]] == ["trial-0000", "trial-0001", "trial-0002"]
    assert "stopped early" in lines[3]
    assert "Diverged: loss is nan" in lines[4]
    assert lines[-1] == f"to continue: `mtcon-ray resume tiny-1 --root {sweep.parents[1]}`"
    reason = "search.max_hours 2 is reached: 3 of 9 trials have ended"
    RunLog(sweep).append(Ended(status="FINISHED", tags={"mtcon.reason": reason}))
    lines = invoke("status", "tiny-1").stdout.splitlines()
    assert lines[:2] == ["tiny-1: finished, 3 of 3 trials started", f"ended early: {reason}"]


def test_status_as_csv_has_no_formula(invoke: Invoke, sweep: Path) -> None:
    """A spreadsheet would run what the author of a received sweep wrote."""
    log = RunLog(sweep, "trial-0000")
    log.append(Reopened())
    log.append(Reported(epoch=3, metrics={"=cmd|'/C calc'!A0": -0.5}, tags={}))
    log.append(Ended(status="FINISHED", tags={}))
    table = pd.read_csv(io.StringIO(invoke("status", "tiny-1", "--csv").stdout))
    assert list(table["trial"]) == ["trial-0000", "trial-0001", "trial-0002"]
    assert list(table["state"]) == ["finished", "stopped early", "failed"]
    assert list(table["method.temperature"]) == [0.1, 0.5, 1.0]
    assert table.loc[0, "'=cmd|'/C calc'!A0"] == -0.5
    texts = pd.DataFrame({"-a": ["@SUM(1)", "-x", "-1.5e-3", "+2", "a-b", -3.5]})
    assert csv_text(texts).split() == ["'-a", "'@SUM(1)", "'-x", "-1.5e-3", "+2", "a-b", "-3.5"]


def test_two_sweeps_are_shown_side_by_side(invoke: Invoke, sweep: Path) -> None:
    other = sweep.with_name("tiny-2")
    shutil.copytree(sweep, other)
    (other / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "train": {"epochs": 2}}))
    lines = invoke("status", "tiny-1", "tiny-2").stdout.splitlines()
    assert lines[1] == "tiny-2: stopped, 3 of 3 trials started"
    assert lines[2].split("  ")[-1].strip() == "second - first"
    assert lines[-1].split() == ["train.batch_size", "16", "64"]
    assert "no sweep 'x'" in invoke("status", "tiny-1", "x").stderr


def test_best_is_the_full_budget_winner(invoke: Invoke, sweep: Path) -> None:
    text = invoke("best", "tiny-1").stdout
    winner = "winner: trial-0000 (temperature=0.1), val/accuracy 0.400, network of epoch 2 of 2"
    assert winner in text.splitlines()
    record = json.loads(invoke("best", "tiny-1", "--json").stdout)
    assert (record["params"], record["model_epoch"]) == ({"method.temperature": 0.1}, 2)
    assert record["checkpoint"] == str(sweep / "checkpoints" / "trial-0000" / "model.pt")
    RunLog(sweep, "trial-0000").remove()
    lost = invoke("best", "tiny-1")
    assert lost.exit_code == 1
    assert "full budget" in lost.stderr


def test_train_is_a_sweep_of_one_trial(invoke: Invoke, spec: Path, tmp_path: Path) -> None:
    trained = accepted("train", spec, "--root", tmp_path)
    assert "not all is in MLflow (tracking.offline is set)" in trained.stdout
    checkpoint = tmp_path / "sweeps" / "tiny-1" / "checkpoints" / "trial-0000" / "model.pt"
    assert f"checkpoint: {checkpoint}" in trained.stdout
    assert "winner: trial-0000 (no searched fields)" in trained.stdout
    status = json.loads(invoke("status", "tiny-1", "--json").stdout)
    assert (status["state"], status["num_trials"]) == ("finished", 1)
    assert status["trials"][0]["checkpoint"] == str(checkpoint)
    measured = invoke("evaluate", "tiny-1", "--json")
    assert {"test/accuracy/shape", "heldout/knn/mark"} <= json.loads(measured.stdout).keys()
    ended = invoke("train", spec, "--name", "tiny-1", "--resume")
    assert "tiny-1 has ended already, with all its trials" in ended.stdout
    again = f"`mtcon-ray resume tiny-1 --root {tmp_path}`"
    told = {"tiny-1": again, "My Sweep": "a name must be lower case letters"}
    for name, error in told.items():
        assert error in refused("train", spec, "--name", name, "--root", tmp_path)


def test_train_takes_the_spec_of_a_winner(invoke: Invoke, spec: Path, sweep: Path) -> None:
    """The changes of --set come last. A URL names the root of both sweeps."""
    found = patch("mtcon_ray.cli.run_commands.find_sweep", return_value=sweep)
    with found as find, patch("mtcon_ray.sweep.run.train_once", side_effect=SweepError) as train:
        run("train", "--from", "s3://bucket/x/sweeps/tiny-1", "--set", "data.fraction=0.5")
    (given,), options = train.call_args
    assert (given.name, given.method.temperature, given.data.fraction) == ("tiny", 0.1, 0.5)
    assert (options["root"], options["name"]) == (choose_root("s3://bucket/x"), None)
    assert find.call_args.args == (options["root"], "tiny-1")
    RunLog(sweep, "trial-0000").remove()
    assert "has trained for its full budget" in invoke("train", "--from", "tiny-1").stderr
    for words in ([], [spec, "--from", "tiny-1"]):
        assert "give either SPEC or --from NAME" in refused("train", *words)


def test_a_sweep_without_ray_stops_and_goes_on(invoke: Invoke, spec: Path, tmp_path: Path) -> None:
    """All trials are trained in this process. `resume` knows how the sweep began."""
    stopped = invoke("sweep", spec, "--here", "--name", "mine", "--set", "search.max_hours=1.0e-9")
    assert "search.max_hours 1e-09 is reached: 0 of 3 trials have ended" in stopped.stdout
    done = accepted("resume", "mine", "--set", "search.max_hours=1", "--root", tmp_path)
    assert "connecting to Ray" not in done.output
    trials = json.loads(invoke("status", "mine", "--json").stdout)["trials"]
    assert [trial["status"] for trial in trials] == ["FINISHED"] * 3


def test_looking_at_a_sweep_writes_its_report_and_nothing_else(invoke: Invoke, sweep: Path) -> None:
    """This holds too if the log's last line is incomplete because a driver is writing it."""
    with event_file(sweep).open("ab") as file:
        file.write(b'{"kind": "rep')

    def files() -> dict[str, bytes]:
        found = (p for p in sweep.rglob("*") if p.is_file())
        return {str(p.relative_to(sweep)): p.read_bytes() for p in found}

    before = files()
    for command in (["list"], ["status", "tiny-1"], ["best", "tiny-1"], ["report", "tiny-1"]):
        assert invoke(*command).exit_code == 0, command
    after = files()
    assert {name: text for name, text in after.items() if not name.startswith("report/")} == before
    assert "report/index.html" in after


def test_a_report_shows_images_when_asked(invoke: Invoke, sweep: Path) -> None:
    """The picture has a row for each of six training images: as evaluated, then two views."""
    with patch("mtcon_ray.display.build.evenly", return_value=range(6)) as evenly:
        page = Path(invoke("report", "tiny-1", "--views").stdout.strip())
    evenly.assert_called_once_with(84, 6)  # 70 % of 120
    (found,) = re.findall(r"data:image/jpeg;base64,([^\"]+)", page.read_text())
    size = SPEC["views"]["size"]
    assert Image.open(io.BytesIO(b64decode(found))).size == (3 * size, 6 * size)
    results = load_sweep(sweep)
    best = replace(results.required_winner(), params={"views.grayscale": 1.0})
    with patch.object(build, "example_views") as views, patch.object(build, "_picture"):
        list(build.draw_views(replace(results, trials=(best,))))
    assert views.call_args.args[1].grayscale == 1, "as the winner was trained"


def test_trials_are_exported_as_an_optuna_study(invoke: Invoke, sweep: Path) -> None:
    RunLog(sweep, "trial-0003").append(
        Started(params={"method.temperature": 0.5}, tags={"mtcon.epochs": "2", "mtcon.seed": "1"})
    )
    done = invoke("export", "tiny-1", "--to", "optuna")
    target = sweep / "optuna.journal"
    assert done.stdout == f"4 trials exported: optuna-dashboard {target}\n"
    storage = JournalStorage(JournalFileBackend(str(target)))
    trials = optuna.load_study(study_name="tiny-1", storage=storage).trials
    assert [t.state.name for t in trials] == ["COMPLETE", "PRUNED", "FAIL", "RUNNING"]
    assert (trials[0].value, trials[0].params) == (0.4, {"method.temperature": 0.1})
    assert trials[0].intermediate_values == {1: 0.3, 2: 0.4}
    assert trials[2].user_attrs["reason"] == "Diverged: loss is nan"
    again = refused("export", "tiny-1", "--to", "optuna", "--root", sweep.parents[1])
    assert "--out must name a new file" in again


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("status tiny-1 b --csv", "give at most one of --json, --csv and a second sweep"),
        ("status tiny-1 --json --csv", "give at most one of --json, --csv and a second sweep"),
        ("export tiny-1 --to optuna --set seed=1", "--set is for encoders, got --to optuna"),
        ("export tiny-1", "--to pt2 needs --out, a new folder"),
    ],
)
def test_options_that_do_not_fit_are_refused(sweep: Path, words: str, told: str) -> None:
    assert told in refused(*words.split(), "--root", sweep.parents[1])
