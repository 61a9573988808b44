"""Commands that submit and follow jobs, and the command that resumes sweeps of this machine."""

import shutil
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from unittest.mock import Mock

import pytest
import yaml

from mtcon_ray.base.lock import driver_lock
from mtcon_ray.errors import SweepError
from mtcon_ray.records.results import JOB
from tests.cli.conftest import SPEC, refused, run
from tests.some import some

LOG = "[ 0:00] starting\x1b[2J\n\tno event [red]äß…[/red]\n"


@pytest.mark.parametrize(
    ("options", "followed"), [([], True), (["-q"], True), (["-q", "--no-follow"], False)]
)
def test_a_spec_is_submitted_and_its_log_controls_no_terminal(
    options: list[str], followed: bool, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Mock(address="http://head")
    cluster.submit.return_value.id = "small-1-1"
    cluster.follow.side_effect = lambda job_id, write: write(LOG) or 3
    monkeypatch.setattr("mtcon_ray.cli.job_commands.Jobs", Mock(return_value=cluster))
    monkeypatch.chdir(spec.parent)
    changes = ["--set", "train.lr=0.1", "--root", "/data/results"]
    assert "needs --name" in run("submit", "spec.yaml", "--retry-failed", *options).output
    result = run("submit", "spec.yaml", *changes, "--retry-failed", "--name", "a", *options)
    assert result.exit_code == (3 if followed else 0), result.output
    quiet = ["-q"] * ("-q" in options and followed)
    command = ["python", "-m", "mtcon_ray", "sweep", "spec.yaml", *changes, "--retry-failed"]
    (_, sent), given = cluster.submit.call_args
    assert sent == [*command, *quiet]
    assert (given["name"], given["root"]) == ("a", Path("/data/results"))
    assert "*.py" in given["env"]["excludes"]
    first = "small-1-1\n" if "-q" in options else "job small-1-1\n"
    assert result.stdout.startswith(first)
    assert result.stdout.endswith(LOG.replace("\x1b", "\\x1b") if followed else first)


NOT_UPLOADED = [
    ("", "does not exist"),
    ("/small\n/photos/", "an ignore file names /photos"),  # /small is another folder
    ("*all", "an ignore file names *all"),
]


@pytest.mark.parametrize(("ignored", "why"), NOT_UPLOADED)
def test_data_that_the_upload_lacks_are_refused(
    ignored: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"kind": "table", "csv": "/data/a.csv", "images": "photos/small", "tasks": ["shape"]}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "data": data}))
    (tmp_path / ".gitignore").write_text(ignored)
    if ignored:
        (tmp_path / "photos" / "small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    told = refused("submit", "spec.yaml")
    assert "data.images must be uploaded or lie on the cluster, got photos/small, which" in told
    assert why in told


@pytest.fixture
def folder(spec: Path) -> Path:
    """Returns the folder of a sweep that has its spec alone."""
    folder = spec.parent / "sweeps" / "small-1"
    folder.mkdir(parents=True)
    shutil.copy(spec, folder)
    return folder


@pytest.mark.parametrize(
    "words", [["sweep", "spec.yaml", "--name", "small-1"], ["resume", "small-1"]]
)
def test_failed_trials_are_retried_by_a_resume(
    words: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sweep = Mock(side_effect=SweepError("enough"))
    monkeypatch.setattr("mtcon_ray.sweep.run.run_sweep", run_sweep)
    monkeypatch.chdir(tmp_path)
    assert "enough" in refused(*words, "--retry-failed", "--root", tmp_path)
    given = {"name": "small-1", "resume": True, "retry_failed": True}
    assert given.items() <= run_sweep.call_args.kwargs.items()


DRIVER = """
import sys, time, pathlib
from mtcon_ray.base.lock import driver_lock
with driver_lock(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_sweep_of_this_machine_is_stopped_by_its_name(folder: Path, tmp_path: Path) -> None:
    stop = ["stop", "small-1", "--root", tmp_path]
    with Popen([sys.executable, "-c", DRIVER, folder], stdout=PIPE, text=True) as driver:
        assert some(driver.stdout).readline() == "locked\n"
        told = run(*stop).stdout
    assert driver.returncode == -signal.SIGTERM
    assert told.endswith(f"to continue: `mtcon-ray resume small-1 --root {tmp_path}`\n")
    assert run(*stop).stdout == "small-1 is not running\n"


def test_a_misspelt_sweep_is_told_with_the_cluster(folder: Path, tmp_path: Path) -> None:
    error = refused("stop", "smal-1", "--root", tmp_path, "--address", "127.0.0.1:9")
    assert "no sweep 'smal-1' under " in error
    assert "did you mean 'small-1'?; no Ray cluster takes jobs at http://127.0.0.1:9" in error


def test_a_process_named_only_by_a_lock_s_text_is_not_stopped(folder: Path, tmp_path: Path) -> None:
    with Popen(["sleep", "60"]) as other, driver_lock(folder):
        (folder / "lock").write_text(f"process {other.pid} on here")
        error = refused("stop", "small-1", "--root", tmp_path)
        assert error.startswith(f"error: 'small-1' is driven by process {other.pid} on here, not")
        assert other.poll() is None
        other.kill()


NOT_RESUMED = [
    ("small-1", "a job of a cluster began sweep 'small-1'; repeat `mtcon-ray submit` with"),
    ("smal-1", "no sweep 'smal-1' under {}; did you mean 'small-1'?"),
]


@pytest.mark.parametrize(("name", "told"), NOT_RESUMED)
def test_a_sweep_of_a_job_and_a_misspelt_sweep_are_not_resumed(
    name: str, told: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcon_ray.cli.job_commands.first_tags", lambda folder: {JOB: "true"})
    assert refused("resume", name, "--root", tmp_path).startswith("error: " + told.format(tmp_path))
