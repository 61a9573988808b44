"""Refusals and messages of jobs that need no cluster."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from ray.job_submission import JobDetails, JobStatus, JobType

from mtcon_ray.cli.main import program
from mtcon_ray.cluster.jobs import Jobs, checked_address, lost
from mtcon_ray.errors import MtconError, UserError


@pytest.mark.ray
@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("head:8265", "http://head:8265"),
        ("http://head:8265/", "http://head:8265"),
        ("https://ray.example", "https://ray.example"),
    ],
)
def test_an_address_is_a_dashboard(given: str, url: str) -> None:
    assert checked_address(given) == url


@pytest.mark.ray
@pytest.mark.parametrize("given", ["ray://head:10001", "auto", "anyscale://x"])
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(UserError, match=r"must be the dashboard's, as http://head:8265"):
        Jobs(given)


@pytest.mark.ray
def test_nobody_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument wins over RAY_API_SERVER_ADDRESS, which Ray itself would prefer."""
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8")
    with pytest.raises(MtconError, match=r"no Ray cluster answers at http://127\.0\.0\.1:9;"):
        Jobs("127.0.0.1:9")


@pytest.mark.ray
@pytest.mark.parametrize("way", ["option", "spec"])
def test_a_root_that_the_job_would_lose_is_refused(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative root would be in Ray's copy of the working directory, which Ray deletes."""
    monkeypatch.chdir(tmp_path)
    storage = {"storage": {"root": "results"}} if way == "spec" else {}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({"name": "small", **storage}))
    words = ["submit", "spec.yaml", "--address", "127.0.0.1:9"]
    told = CliRunner().invoke(program, [*words, "--root", "results"] if way == "option" else words)
    assert told.exit_code == 2
    assert "root must" in told.output


@pytest.mark.ray
@pytest.mark.parametrize(
    ("error_type", "told"),
    [
        ("RUNTIME_ENV_SETUP_FAILURE", "was never started, for its environment could not be made:"),
        ("JOB_SUPERVISOR_ACTOR_DIED", "what it did is kept, `mtcon-ray resume small-1-1` goes on"),
    ],
)
def test_a_job_without_an_exit_code_says_why(error_type: str, told: str) -> None:
    """Only the end of a long trace is shown."""
    message = "\n".join(f"line {number}" for number in range(30))
    details = JobDetails(
        type=JobType.SUBMISSION, status=JobStatus.FAILED, entrypoint="python a.py",
        message=message, error_type=error_type,
    )  # fmt: skip
    said = lost("small-1-1", details)
    assert told in said
    assert "line 29" in said
    assert "line 21" not in said
