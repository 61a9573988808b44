"""MLflow's database and files below roots with unusual names, and below a root that was moved."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from mtcon_ray.errors import SweepError, UserError
from mtcon_ray.tracking.mlflow_server import check_server, own_database, ui_command
from mtcon_ray.tracking.own_runs import remove_runs
from tests.tracking.conftest import MLFLOW, Sweep

pytestmark = MLFLOW


@pytest.mark.parametrize("name", ["q?x=1", "c#1 %41"])
def test_a_root_may_have_characters_of_urls(name: str, root: Path, empty_database: Path) -> None:
    new = root / "roots" / name
    sweep = Sweep(new / "runs" / "shoes-1", own_database(new))
    sweep.folder.mkdir(parents=True)
    shutil.copy(empty_database, new / "mlflow.db")
    sweep.begin().add_file("model.pt")
    assert sweep.send().refused == []
    found = sweep.client.download_artifacts(sweep.run().info.run_id, "model.pt")
    assert Path(found).read_text() == "network"
    assert [path.name for path in (root / "roots").iterdir()] == [name]
    made = ["mlartifacts", "mlflow.db", "mlflow.db.lock", "runs"]
    assert sorted(path.name for path in new.iterdir()) == made
    assert sweep.uri in shlex.split(ui_command(sweep.uri))


def test_a_stranger_s_database_names_no_place_for_files(sweep: Sweep, root: Path) -> None:
    """The rows of the experiment and of a run may name any folder of the user."""
    log, home = sweep.begin(), root / "home"
    home.mkdir()
    sweep.send()
    sweep.execute("UPDATE runs SET artifact_uri = ?", home.as_uri())
    log.add_file("model.pt")
    sender = sweep.send(left=1)
    assert f"the files of a run are not sent to {home.as_uri()}" in sender.held["parent"]
    sweep.execute("UPDATE experiments SET artifact_location = ?", home.as_uri())
    with pytest.raises(UserError, match="the files of a run are not sent"):
        check_server(sweep.uri, experiment=sweep.experiment, root=root)
    assert not [*home.iterdir()]


def test_a_moved_root_sends_no_files_back(sweep: Sweep, root: Path, empty_database: Path) -> None:
    """A link from the old place to the new one makes the files of all runs readable."""
    old, new = root / "old", root / "new"
    sweep.folder, sweep.uri = old / "runs" / "shoes-1", own_database(old)
    old.mkdir()
    shutil.copy(empty_database, old / "mlflow.db")
    sweep.begin()
    sweep.send()
    old.rename(new)
    sweep.folder, sweep.uri = new / "runs" / "shoes-2", own_database(new)
    sweep.begin().add_file("model.pt")
    problem = f"experiment 'tests' keeps its files in {old}/mlartifacts, not below the root {new}"
    with pytest.raises(UserError, match=re.escape(problem)):
        check_server(sweep.uri, experiment=sweep.experiment, root=new)
    assert problem in sweep.send(left=2).reason
    assert not old.exists()
    old.symlink_to(new)
    sweep.send()
    assert len([*(new / "mlartifacts").rglob("model.pt")]) == 1


def test_a_removal_touches_no_other_sweep(sweep: Sweep, root: Path) -> None:
    """The row of a run may be a stranger's, and name any folder of the user by the run's id."""
    other, place = Sweep(root / "sweeps" / "shoes-2", sweep.uri), root / "mlartifacts"
    for each in (sweep, other):
        each.begin().add_file("model.pt")
        each.send()
    own, kept = sweep.id(), other.id()
    copy = shutil.copytree(sweep.folder, root / "sweeps" / "copy")
    assert remove_runs(copy, sweep.uri, "tests").startswith("0 runs deleted in MLflow")
    for new in (own, ".", "../sweeps/shoes-2", str(other.folder)):
        sweep.execute("UPDATE tags SET run_uuid = ? WHERE run_uuid = ?", new, own)
        row = new, f"{(place / new).as_uri()}/artifacts", own
        sweep.execute("UPDATE runs SET run_uuid = ?, artifact_uri = ? WHERE run_uuid = ?", *row)
        own = new
        assert remove_runs(sweep.folder, sweep.uri, "tests").startswith("1 runs deleted in MLflow")
        assert [*place.iterdir()] == [place / kept]
        assert other.id() == kept
    assert other.folder.exists()
    sweep.spool().path.unlink()
    with pytest.raises(SweepError, match="has no event log, by which its runs are found"):
        remove_runs(sweep.folder, sweep.uri, "tests")
