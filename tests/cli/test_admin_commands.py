"""`clean --yes` of links and after an interrupted removal, and `audit --repair`."""

from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import Result

from mtcon_ray.base.lock import driver_lock
from mtcon_ray.base.paths import SPEC_FILE, event_file, sweep_folder
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Ended, Started
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.spec.run_spec import parse_spec
from tests.base.test_paths import make
from tests.cli.conftest import refused, run
from tests.recorded import plan_with


def clean(root: Path, *options: str) -> Result:
    return run("clean", "shoes-1", "--root", root, *options)


def test_a_link_is_refused_before_anything_is_renamed(tmp_path: Path) -> None:
    target, link = make(tmp_path / "disk" / "shoes"), sweep_folder(tmp_path, "shoes-1")
    link.parent.mkdir()
    link.symlink_to(target)
    assert clean(tmp_path).exit_code == 0
    error = refused("clean", "shoes-1", "--yes", "--root", tmp_path)
    assert f"{link} is a link to {target}, and nothing is written through links" in error
    assert list(link.parent.iterdir()) == [link]
    assert (target / SPEC_FILE).exists()


def test_an_interrupted_removal_is_finished(tmp_path: Path) -> None:
    folder = make(sweep_folder(tmp_path, "shoes-1"))
    make(folder.with_name(".removing-shoes-1"))
    assert clean(tmp_path, "--yes").exit_code == 0
    assert list(folder.parent.iterdir()) == []


def test_a_sweep_that_starts_meanwhile_is_not_removed(tmp_path: Path) -> None:
    folder = make(sweep_folder(tmp_path, "shoes-1"))
    with driver_lock(folder), patch("mtcon_ray.cli.admin_commands.is_driven", return_value=False):
        assert "is already running" in refused("clean", "shoes-1", "--yes", "--root", tmp_path)
    assert clean(tmp_path, "--yes").exit_code == 0


def test_the_size_of_a_folder_does_not_count_what_its_links_lead_to(tmp_path: Path) -> None:
    folder = make(tmp_path / "sweeps" / "shoes-1")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "large").write_bytes(bytes(100_000))
    (folder / "link").symlink_to(tmp_path / "disk")
    assert "100.0 kB" not in clean(tmp_path).output


@pytest.mark.mlflow
def test_repair_sends_the_events_of_an_offline_sweep_to_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "sweeps" / "shoes-1"
    folder.mkdir(parents=True)
    spec = parse_spec({"name": "shoes", "tracking": {"offline": True}})
    write_beginnings(folder, spec, plan_with(num_trials=1))
    log = EventLog(event_file(folder))
    log.append(Started(params={}, tags={"mtcon.sweep": "shoes-1"}))
    log.append(Ended(status="FINISHED", tags={}))

    def audit(*options: str) -> Result:
        return run("audit", "shoes-1", "--root", tmp_path, *options)

    agree = "shoes-1: all records agree\n"
    assert audit().stdout == agree
    assert audit("--repair").stdout == f"repaired: MLflow, run parent: it is missing\n{agree}"
    log.append(Artifact(path=str(folder / "plan.json"), to=""))
    assert audit("--repair").stdout == f"repaired: MLflow: 1 events are not sent yet\n{agree}"
    assert audit("--repair").stdout == agree
    (files,) = (tmp_path / "mlartifacts").glob("*/artifacts/plan.json")
    assert "which --mlflow also deletes" in clean(tmp_path).stdout
    assert files.exists()
    told = clean(tmp_path, "--mlflow", "--yes").stdout
    gc = f"`MLFLOW_TRACKING_URI=sqlite:///{tmp_path}/mlflow.db mlflow gc`"
    assert f"1 runs deleted in MLflow; {gc} removes all deleted runs for good\n" in told
    assert not files.parents[1].exists()
    assert list((tmp_path / "sweeps").iterdir()) == []
