"""Tests of the command that a job of a cluster is resumed with."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from mtcon_ray.cli.main import program
from mtcon_ray.errors import MtconError, SweepError

SPEC = """\
version: 1
name: small
data: {kind: synthetic, num_items: 300}
search: {space: {method.temperature: {uniform: [0.1, 1.0]}}, num_trials: 3}
"""
COMMAND = ["python", "-m", "mtcon_ray", "sweep", "spec.yaml"]
LAST = [*COMMAND, "--set", "train.lr=0.1", "--root", "/data/results", "-q"]


@pytest.mark.parametrize(
    ("last", "resumed"),
    [
        (LAST, COMMAND),
        (["python", "-u", "script.py", *LAST[5:]], ["python", "-u", "script.py"]),
    ],
)
def test_a_job_is_resumed_with_the_settings_of_its_last_one(
    last: list[str], resumed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New settings follow the former ones; name, root and packages are those of the last job."""
    submitted: dict[str, Any] = {}

    class Cluster:
        def __init__(self, address: str) -> None:
            self.address = address

        def find(self, job: str) -> SimpleNamespace:
            return SimpleNamespace(command=last, sweep=job, variables={}, requirements=["a==1"])

        def submit(self, stem: str, command: list[str], **options: Any) -> SimpleNamespace:
            submitted.update(options, command=command)
            return SimpleNamespace(id="small-1-2")

    monkeypatch.setattr("mtcon_ray.cluster.jobs.Jobs", Cluster)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "script.py").touch()
    more = ["--set", "search.num_trials=9"]
    words = ["resume", "small-1", *more, "--retry-failed", "--no-follow"]
    result = CliRunner().invoke(program, words)
    assert result.exit_code == 0, result.output
    given = [*LAST[5:7], *more, "--root", "/data/results", "--retry-failed"]
    assert submitted["command"] == [*resumed, *given]
    assert submitted["name"] == "small-1"
    assert submitted["root"] == Path("/data/results")
    assert submitted["requirements"] == ["a==1"]
    assert "job small-1-2: " in result.stdout


@pytest.mark.parametrize(
    "words", [["sweep", "spec.yaml", "--name", "small-1"], ["resume", "small-1"]]
)
def test_failed_trials_are_retried_by_a_resume(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def run_sweep(spec: Any, **options: Any) -> None:
        given.update(options)
        raise SweepError("enough")

    folder = tmp_path / "sweeps" / "small-1"
    folder.mkdir(parents=True)
    for path in (tmp_path, folder):
        (path / "spec.yaml").write_text(SPEC)
    monkeypatch.setattr("mtcon_ray.sweep.driver.run_sweep", run_sweep)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(program, [*words, "--retry-failed", "--root", str(tmp_path)])
    assert result.exit_code == 2, result.output
    assert (given["name"], given["resume"], given["retry_failed"]) == ("small-1", True, True)


def test_a_job_that_no_cluster_knows_any_more_is_not_searched_by_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str) -> None:
        raise MtconError("no Ray cluster answers")

    folder = tmp_path / "sweeps" / "j"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(SPEC)
    monkeypatch.setattr("mtcon_ray.cluster.jobs.Jobs", refuse)
    monkeypatch.setattr("mtcon_ray.results.was_submitted", lambda folder: True)
    told = CliRunner().invoke(program, ["resume", "j", "--root", str(tmp_path)])
    assert told.exit_code == 2
    assert "did you mean" not in told.stderr
    assert "a job of a cluster began sweep 'j', and no cluster knows it: no Ray" in told.stderr
    assert "`mtcon-ray submit` with --name j continues it on another cluster" in told.stderr


@pytest.mark.parametrize(
    ("address", "code", "start"),
    [
        ([], 2, "no sweep 'smal-1' under {}; did you mean 'small-1'?; as a job: no Ray cluster"),
        (["--address", "http://head:8265"], 1, "no Ray cluster answers"),
    ],
)
def test_a_misspelt_sweep_is_answered_with_its_name(
    address: list[str], code: int, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str) -> None:
        raise MtconError("no Ray cluster answers")

    folder = tmp_path / "sweeps" / "small-1"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(SPEC)
    monkeypatch.setattr("mtcon_ray.cluster.jobs.Jobs", refuse)
    words = ["resume", "smal-1", "--root", str(tmp_path), *address]
    result = CliRunner().invoke(program, words)
    assert result.exit_code == code
    assert result.stderr.startswith("error: " + start.format(tmp_path))
