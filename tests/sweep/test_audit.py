"""Audit of a sweep's records: each kind of damage is found, and repaired where that is possible."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from optuna.trial import TrialState

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import checkpoint_folder, journal_file, parent_log, trial_log
from mtcon_ray.cli.main import program
from mtcon_ray.data.checksums import write_checksums
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Ended, Reported, Started
from mtcon_ray.spec.run_spec import dump_spec, parse_spec
from mtcon_ray.sweep.audit import (
    CUT,
    ENDED,
    REMOVED,
    SENT,
    SETTLED,
    Audit,
    Finding,
    what_is_lost,
)
from mtcon_ray.sweep.study import open_study
from mtcon_ray.tracking.provenance import CACHE, FINGERPRINT
from mtcon_ray.training import checkpoint
from tests.sweep.written_sweep import DATA, give, save_model, value, write_sweep


@pytest.fixture
def folder(root: Path) -> Path:
    """Returns a sweep of three trials whose records agree."""
    folder = root / "sweeps" / "shoes-1"
    write_sweep(folder)
    return folder


@pytest.fixture
def uri(root: Path) -> str:
    return f"sqlite:///{root}/mlflow.db"


def found(folder: Path, uri: str | None = None) -> list[Finding]:
    audit = Audit(folder)
    return [*audit.records(), *audit.files(), *(audit.tracking(uri) if uri else ())]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def without_line(folder: Path, number: int) -> None:
    path = trial_log(folder, "trial-0000")
    kept = lines(path)
    del kept[number]
    path.write_text("".join(kept))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"seq": 9, "ki')


def shortened(folder: Path) -> None:
    """The log of the finished trial ends after its second epoch, with its end."""
    path = trial_log(folder, "trial-0000")
    kept = [line for line in lines(path) if '"epoch": 3' not in line]
    events = [json.loads(line) | {"seq": seq} for seq, line in enumerate(kept)]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def replaced(folder: Path, old: str, new: str) -> None:
    path = trial_log(folder, "trial-0000")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def flipped(folder: Path, name: str) -> None:
    path = folder / "checkpoints" / "trial-0000" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)


def swapped(folder: Path) -> None:
    """The finished trial has the network of another one."""
    checkpoints = folder / "checkpoints"
    (checkpoints / "trial-0001" / "model.pt").replace(checkpoints / "trial-0000" / "model.pt")


def of_another_epoch(folder: Path) -> None:
    spec = parse_spec(yaml.safe_load((folder / "spec.yaml").read_text())).trial({"train.lr": 0.1})
    save_model(folder / "checkpoints" / "trial-0000", spec, 2, value(0, 2), "model.pt")


def foreign(folder: Path, **values: Any) -> None:
    path = folder / "checkpoints" / "trial-0000" / "model.pt"
    checkpoint.save(path, {**checkpoint.load(path), **values})


def leftover(folder: Path) -> None:
    checkpoint.save(folder / "checkpoints" / "trial-0000" / "last.pt", {"best": None})


def no_checkpoint(folder: Path) -> None:
    (folder / "checkpoints" / "trial-0002" / "last.pt").write_bytes(b"PK")


def journal_behind(folder: Path) -> None:
    """The journal has lost the end of the trial that has finished."""
    path = journal_file(folder)
    complete = TrialState.COMPLETE.value
    kept = [line for line in lines(path) if json.loads(line).get("state") != complete]
    path.write_text("".join(kept))


def log_behind(folder: Path) -> None:
    path = trial_log(folder, "trial-0001")
    path.write_text("".join(lines(path)[:-1]))


def changed_images(folder: Path) -> None:
    """The sweep was begun with the cache `abc`, in which one bit has changed."""
    images = folder.parents[1] / "store" / "abc" / "images.npy"
    images.parent.mkdir(parents=True)
    images.write_bytes(bytes(9))
    write_checksums(images.parent)
    path = parent_log(folder)
    path.write_text(path.read_text().replace(DATA, f'{DATA}", "{CACHE}": "abc'))
    assert found(folder) == []
    images.write_bytes(bytes(8) + b"\1")


DAMAGES: dict[str, tuple[Callable[[Path], Any], str, str, str | None]] = {
    "cut log": (
        lambda folder: cut(trial_log(folder, "trial-0000")),
        "spool/trial-0000.jsonl", "last line is cut", CUT,
    ),
    "cut journal": (
        lambda folder: cut(journal_file(folder)), "study.journal", "last line is cut", CUT,
    ),
    "no log": (
        lambda folder: trial_log(folder, "trial-0000").unlink(),
        "spool/trial-0000.jsonl", "missing: its metrics are lost", None,
    ),
    "no start": (
        lambda folder: without_line(folder, 0),
        "spool/trial-0000.jsonl", "its beginning is missing", None,
    ),
    "no epoch": (
        lambda folder: without_line(folder, 2), "spool/trial-0000.jsonl", "are lost: 2", None,
    ),
    "gap": (
        lambda folder: without_line(folder, 2), "spool/trial-0000.jsonl", "without gaps", None,
    ),
    "damaged line": (
        lambda folder: trial_log(folder, "trial-0000").write_text("{}\n"),
        "spool/trial-0000.jsonl", "it is damaged: ", None,
    ),
    "shortened": (shortened, "spool/trial-0000.jsonl", "finished with 2 of 3 epochs", None),
    "no budget": (
        lambda folder: replaced(folder, '"mtcon.epochs"', '"x"'),
        "spool/trial-0000.jsonl", "lacks the epochs or the seed", None,
    ),
    "damaged journal": (
        lambda folder: journal_file(folder).write_text("no\n" + journal_file(folder).read_text()),
        "study.journal", "it is damaged: ", None,
    ),
    "value of another kind": (
        lambda folder: foreign(folder, value={}),
        "checkpoints/trial-0000/model.pt", "not written by this program: its value is {}", None,
    ),
    "spec of another kind": (
        lambda folder: foreign(folder, spec="[1]"),
        "checkpoints/trial-0000/model.pt", "not written by this program: its spec is a list", None,
    ),
    "no journal": (
        lambda folder: journal_file(folder).unlink(),
        "study.journal", "it lacks trial-0000", None,
    ),
    "twice": (
        lambda folder: give(folder, "trial-0000"),
        "study.journal", "trial-0000 occurs twice", None,
    ),
    "configuration twice": (
        lambda folder: give(folder, "trial-0003"),
        "study.journal", "configuration 0, repeat 0 occurs 2 times", None,
    ),
    "other end": (
        lambda folder: replaced(folder, '"status": "FINISHED"', '"status": "FAILED"'),
        "study.journal", "is complete here and failed in its event log", None,
    ),
    "other value": (
        lambda folder: replaced(folder, f"{value(0, 3)}", "0.5"),
        "study.journal", "has value 0.03 here and 0.5 in its event log", None,
    ),
    "other epoch's value": (
        lambda folder: replaced(folder, f"{value(0, 3)}", "0.5"),
        "study.journal", "has 0.0300 at epoch 3 here and 0.5000 in its event log", None,
    ),
    "other parameters": (
        lambda folder: replaced(folder, '"train.lr": 0.1', '"train.lr": 0.7'),
        "study.journal", "{'train.lr': 0.7} in its event log", None,
    ),
    "journal behind": (
        journal_behind, "study.journal", "is running here and finished in its event log", SETTLED,
    ),
    "log behind": (log_behind, "study.journal", "is pruned here, but its event log has", ENDED),
    "no network": (
        lambda folder: (folder / "checkpoints" / "trial-0000" / "model.pt").unlink(),
        "checkpoints/trial-0000/model.pt", "the network is lost", None,
    ),
    "flipped network": (
        lambda folder: flipped(folder, "model.pt"),
        "checkpoints/trial-0000/model.pt", "is not a whole file", None,
    ),
    "another's network": (
        swapped, "checkpoints/trial-0000/model.pt", "train.lr was 0.2, is 0.1", None,
    ),
    "network of another epoch": (
        of_another_epoch, "checkpoints/trial-0000/model.pt",
        "of epoch 2 with 0.0200; the event log selects epoch 3 with 0.0300", None,
    ),
    "predictions": (
        lambda folder: flipped(folder, "predictions.npz"),
        "checkpoints/trial-0000/predictions.npz", "cannot be read", None,
    ),
    "leftover": (leftover, "checkpoints/trial-0000/last.pt", "has ended", REMOVED),
    "changed images": (changed_images, "store/abc", "images.npy has changed", None),
    "no checkpoint": (no_checkpoint, "checkpoints/trial-0002", "last.pt is not a whole", None),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_each_damage_is_found_and_repaired_where_possible(
    folder: Path, uri: str, kind: str
) -> None:
    damage, where, problem, repair = DAMAGES[kind]
    damage(folder)
    told = found(folder)
    [finding] = [f for f in told if f.where == where and problem in f.problem]
    assert finding.repair == repair
    if repair:
        assert told == [finding], "nothing else is wrong"
        Audit(folder).repair(told, uri)
        assert found(folder) == []


def test_a_repaired_study_has_the_value_of_the_event_log(folder: Path, uri: str) -> None:
    journal_behind(folder)
    Audit(folder).repair(found(folder), uri)
    first = open_study(journal_file(folder), folder.name).get_trials()[0]
    assert (first.state, first.value) == (TrialState.COMPLETE, value(0, 3))


def test_a_network_that_was_removed_on_purpose_is_not_missing(folder: Path) -> None:
    checkpoint.discard_network(checkpoint_folder(folder, "trial-0000"), "storage.keep: 1")
    assert found(folder) == []


def test_a_resume_tells_what_stays_wrong(folder: Path) -> None:
    assert what_is_lost(folder) == []
    journal_behind(folder)
    without_line(folder, 2)
    assert what_is_lost(folder) == [
        "spool/trial-0000.jsonl: its events are not numbered without gaps: lines are missing",
        "spool/trial-0000.jsonl: the metrics of these epochs are lost: 2",
    ]


@pytest.mark.mlflow
def test_runs_in_mlflow_are_compared_and_sent_again(
    folder: Path, uri: str, root: Path, tmp_path: Path
) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    assert {(f.problem, f.repair) for f in found(folder, uri)} == {("it is missing", SENT)}
    Audit(folder).repair(found(folder, uri), uri)
    assert found(folder, uri) == []
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("mtcon-ray")
    assert experiment is not None
    runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    first, second = runs["trial-0000"].info.run_id, runs["trial-0001"].info.run_id
    client.set_terminated(first, "FAILED")
    again = client.create_run(experiment.experiment_id, tags=runs["trial-0000"].data.tags)
    client.log_batch(second, metrics=[Metric("loss", 1.0, 5, 1)])
    log = EventLog(trial_log(folder, "trial-0002"))
    log.append(Ended(status="KILLED", tags={"mtcon.interrupted": "true"}))
    told = {(f.where, f.problem, f.repair) for f in found(folder, uri)}
    assert told == {
        ("MLflow, run trial-0000", "it occurs 2 times", SENT),
        ("MLflow, run trial-0000", "it is FAILED here and FINISHED in its event log", SENT),
        ("MLflow, run trial-0001", "of the steps of loss 0 are missing, 1 doubled", None),
    }
    assert client.get_run(again.info.run_id).info.lifecycle_stage == "active"
    result = CliRunner().invoke(
        program, ["audit", folder.name, "--root", str(root), "--json", "--repair"]
    )
    assert result.exit_code == 1, "a doubled step stays"
    shown = json.loads(result.output)
    assert [f["where"] for f in shown["found"]] == ["MLflow, run trial-0001"]
    assert len(shown["repaired"]) == 2
    assert client.get_run(first).info.status == "FINISHED"


def test_the_command_says_what_is_wrong_and_what_would_repair_it(folder: Path, root: Path) -> None:
    ask = ["audit", folder.name, "--root", str(root), "--no-mlflow"]
    fine = CliRunner().invoke(program, ask)
    assert (fine.exit_code, fine.output) == (0, "shoes-1: all records agree\n")
    leftover(folder)
    told = CliRunner().invoke(program, ask)
    line = "checkpoints/trial-0000/last.pt: its training has ended"
    assert (told.exit_code, told.output) == (1, f"{line}; --repair: it is removed\n")
    done = CliRunner().invoke(program, [*ask, "--repair"])
    assert done.exit_code == 0
    assert done.output == f"repaired: {line}\nshoes-1: all records agree\n"


def test_a_single_training_is_audited_too(root: Path) -> None:
    folder = root / "runs" / "one-1"
    folder.mkdir(parents=True)
    spec = parse_spec({"name": "one", "train": {"epochs": 1}}).trial({})
    (folder / "spec.yaml").write_text(yaml.safe_dump(dump_spec(spec)))
    log = EventLog(parent_log(folder))
    tags = {FINGERPRINT: DATA, "mtcon.epochs": "1", "mtcon.seed": "0"}
    log.append(Started(params={}, tags=tags))
    log.append(Reported(epoch=1, metrics={"loss": 1.0, MEAN_ACCURACY: 0.5}))
    save_model(folder, spec, 1, 0.5, "model.pt")
    log.append(Artifact(path=str(folder / "model.pt"), to="checkpoints"))
    log.append(Ended(status="FINISHED", tags={}))
    assert found(folder) == []
    checkpoint.save(folder / "last.pt", {"best": None})
    (folder / "predictions.npz").write_bytes(b"no")
    assert [f.where for f in found(folder)] == ["predictions.npz", "last.pt"]
    Audit(folder).repair(found(folder), "")
    assert [f.where for f in found(folder)] == ["predictions.npz"]
