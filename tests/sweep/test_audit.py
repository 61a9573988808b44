"""Audit of a sweep's records: each kind of damage is found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from mtcon_ray.base.paths import checkpoint_folder, event_file
from mtcon_ray.base.status import Status
from mtcon_ray.data.checksums import write_checksums
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Reported
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.audit import SENT, Audit, Finding
from mtcon_ray.tracking.mlflow_server import own_database
from mtcon_ray.tracking.provenance import CACHE
from mtcon_ray.training import checkpoint
from tests.cli.conftest import run
from tests.sweep.written_sweep import DATA, record_of, save_model, value
from tests.tracking.conftest import Sweep


def found(folder: Path, uri: str | None = None) -> list[Finding]:
    audit = Audit(folder)
    return [*audit.records(), *audit.files(), *(audit.tracking(uri) if uri else ())]


def ask(folder: Path, *options: str) -> Result:
    return run("audit", folder.name, "--root", folder.parents[1], *options)


def without(folder: Path, *parts: str) -> None:
    """Removes the lines of the log with all these parts."""
    lines = event_file(folder).read_text().splitlines(keepends=True)
    kept = [line for line in lines if not all(part in line for part in parts)]
    event_file(folder).write_text("".join(kept))


def cut_into_ended_trial(folder: Path) -> None:
    """The log ends after the second epoch of the trial that has finished."""
    path = event_file(folder)
    text = path.read_text()
    path.write_text(text[: text.index("\n", text.index('"epoch": 2')) + 1])
    for number in (1, 2):
        shutil.rmtree(checkpoint_folder(folder, f"trial-000{number}"))


def replaced(folder: Path, old: str, new: str) -> None:
    path = event_file(folder)
    path.write_text(path.read_text().replace(old, new, 1))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)


def of_another_epoch(folder: Path) -> None:
    spec = parse_spec(yaml.safe_load((folder / "spec.yaml").read_text())).trial({"train.lr": 0.1})
    save_model(folder / "checkpoints" / "trial-0000", spec, 2, value(0, 2), "model.pt")


def of_another_trial(folder: Path) -> None:
    (folder / "checkpoints" / "trial-0001" / "model.pt").replace(folder / NETWORK)


def foreign(folder: Path) -> None:
    path = folder / NETWORK
    checkpoint.save(path, {**checkpoint.load(path), "value": {}})


def changed_images(folder: Path) -> None:
    """The sweep was begun with the cache `abc`, in which one bit has changed."""
    images = folder.parents[1] / "store" / "abc" / "images.npy"
    images.parent.mkdir(parents=True)
    images.write_bytes(bytes(9))
    write_checksums(images.parent)
    replaced(folder, DATA, f'{DATA}", "{CACHE}": "abc')
    assert found(folder) == []
    images.write_bytes(bytes(8) + b"\1")


FIRST, LOG, NETWORK = '"trial-0000"', "events.jsonl", "checkpoints/trial-0000/model.pt"
PREDICTIONS, LAST = "checkpoints/trial-0000/predictions.npz", "checkpoints/trial-0002/last.pt"
SELECTS = "the event log ends at epoch {0} and selects epoch {0}"


DAMAGE = [
    (lambda folder: without(folder, FIRST), LOG, "trial-0000: its events are"),
    (cut_into_ended_trial, NETWORK, f"of epoch 3 with 0.0300; {SELECTS.format(2)}"),
    (foreign, NETWORK, "is no checkpoint of mtcon-ray: float() argument"),
    (lambda folder: (folder / NETWORK).unlink(), NETWORK, "the network is lost"),
    (lambda folder: flipped(folder / NETWORK), NETWORK, "is not a whole file"),
    (of_another_trial, NETWORK, "train.lr was 0.2, is 0.1"),
    (of_another_epoch, NETWORK, f"of epoch 2 with 0.0200; {SELECTS.format(3)}"),
    (lambda folder: flipped(folder / PREDICTIONS), PREDICTIONS, "cannot be read"),
    (changed_images, "store/abc", "images.npy has changed"),
    (lambda folder: (folder / LAST).write_bytes(b"PK"), str(Path(LAST).parent), "not a whole"),
]


@pytest.mark.parametrize(("damage", "where", "problem"), DAMAGE)
def test_each_damage(folder: Path, damage: Callable[[Path], Any], where: str, problem: str) -> None:
    damage(folder)
    [finding] = [f for f in found(folder) if f.where == where and problem in f.problem]
    assert finding.repair is None


UNREADABLE = [
    (lambda folder: without(folder, FIRST, '"start"'), "0000 does not begin with a start"),
    (lambda folder: replaced(folder, '"mtcon.epochs"', '"x"'), "start that has its epochs"),
]


@pytest.mark.parametrize(("damage", "told"), UNREADABLE)
def test_an_unreadable_log_is_told(folder: Path, damage: Callable[[Path], Any], told: str) -> None:
    damage(folder)
    with pytest.raises(SweepError, match=told):
        Audit(folder)


def test_a_network_that_was_removed_on_purpose_is_not_missing(folder: Path) -> None:
    checkpoint.discard_network(checkpoint_folder(folder, "trial-0000"), "storage.keep: 1")
    assert found(folder) == []


@pytest.fixture
def sent(folder: Path, root: Path) -> Sweep:
    """Returns the sweep's runs in MLflow."""
    sent = Sweep(folder, own_database(root))
    sent.experiment = "mtcon-ray"
    return sent


@pytest.mark.mlflow
def test_runs_in_mlflow_are_compared_and_sent_again(folder: Path, sent: Sweep) -> None:
    from mlflow.entities import Metric

    assert {(f.problem, f.repair) for f in found(folder, sent.uri)} == {("it is missing", SENT)}
    Audit(folder).repair(sent.uri)
    assert found(folder, sent.uri) == []
    first, client = sent.run("trial-0000"), sent.client
    client.set_terminated(first.info.run_id, "FAILED")
    again = client.create_run(first.info.experiment_id, tags=first.data.tags)
    client.log_batch(sent.id("trial-0001"), metrics=[Metric("loss", 1.0, 5, 1)])
    record = record_of(folder)
    record.end_trial(record.trials["trial-0002"], Status.INTERRUPTED, None)
    assert {(f.where, f.problem, f.repair) for f in found(folder, sent.uri)} == {
        ("MLflow, run trial-0000", "it occurs 2 times", SENT),
        ("MLflow, run trial-0000", "it is FAILED here and FINISHED in the event log", SENT),
        ("MLflow, run trial-0001", "of the steps of loss 0 are missing, 1 doubled", None),
    }
    assert client.get_run(again.info.run_id).info.lifecycle_stage == "active"
    result = ask(folder, "--json", "--repair")
    assert result.exit_code == 1, "a doubled step stays"
    shown = json.loads(result.output)
    assert [f["where"] for f in shown["found"]] == ["MLflow, run trial-0001"]
    assert len(shown["repaired"]) == 2
    assert client.get_run(first.info.run_id).info.status == "FINISHED"


@pytest.mark.mlflow
@pytest.mark.parametrize(("what", "option"), [("run", "--run-id"), ("experiment", "-x")])
def test_deleted_is_not_missing(
    folder: Path, sent: Sweep, what: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user has deleted it in MLflow: the audit names how to restore it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Audit(folder).repair(sent.uri)
    given = getattr(sent.run("trial-0001").info, f"{what}_id")
    getattr(sent.client, f"delete_{what}")(given)
    report = Reported(trial="trial-0001", epoch=9, metrics={"loss": 1.0})
    EventLog(event_file(folder)).append(report)
    for options in ((), ("--repair",)):
        told = ask(folder, *options)
        (line,) = (line for line in told.output.splitlines() if line.startswith("MLflow"))
        assert "is deleted" in line
        assert f"`MLFLOW_TRACKING_URI={sent.uri} mlflow {what}s restore {option} {given}`" in line
        assert (told.exit_code, "repaired" in told.output) == (1, False)
    getattr(sent.client, f"restore_{what}")(given)
    assert "repaired: MLflow, run trial-0001: " in ask(folder, "--repair").output
    assert "MLflow" not in ask(folder).output


@pytest.mark.parametrize(
    ("workers", "problems"), [(2, 0), ([1, 2], 0), (1, 1)], ids=["two", "elastic", "one"]
)
def test_a_network_of_a_later_probe(folder: Path, workers: int | list[int], problems: int) -> None:
    """A stopped trial of several workers may have it: they train on while Tune stops them."""
    raw = yaml.safe_load((folder / "spec.yaml").read_text())
    raw["resources"]["workers"] = workers
    (folder / "spec.yaml").write_text(yaml.safe_dump(raw))
    own = parse_spec(raw).trial({"train.lr": 0.2})
    save_model(checkpoint_folder(folder, "trial-0001"), own, 3, 0.5, "model.pt")
    assert len(found(folder)) == problems


def test_a_store_may_have_an_older_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = parse_spec(yaml.safe_load((folder / "spec.yaml").read_text())).trial({"train.lr": 0.2})
    save_model(checkpoint_folder(folder, "trial-0001"), own, 1, value(1, 1), "model.pt")
    assert len(found(folder)) == 1
    monkeypatch.setattr("mtcon_ray.sweep.audit.paths.stored_url", lambda path: "s3://bucket/a")
    assert found(folder) == []


def test_the_command_says_what_is_wrong(folder: Path) -> None:
    fine = ask(folder, "--no-mlflow")
    assert (fine.exit_code, fine.output) == (0, "shoes-1: all records agree\n")
    (folder / NETWORK).unlink()
    told = ask(folder, "--no-mlflow")
    assert (told.exit_code, told.output) == (1, f"{NETWORK}: it is missing: the network is lost\n")
