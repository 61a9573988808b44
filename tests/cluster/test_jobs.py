"""Refusals and messages of jobs that need no cluster."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mtcon_ray.cli.main import program
from mtcon_ray.cluster.jobs import Job, Jobs, checked_address, lost
from mtcon_ray.errors import MtconError, UserError
from tests.waiting import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[2]
# A job that was not submitted by this package, as the Jobs API describes it.
DETAILS = dict.fromkeys(
    ("metadata", "runtime_env", "start_time", "end_time", "message", "error_type",
     "driver_exit_code")
) | {"submission_id": "small-1-1", "status": "FAILED"}  # fmt: skip
WITHOUT_RAY = """
import sys
from tests.test_imports import BLOCKED_IMPORTS

sys.argv[1:] = ["mtcon_ray.cli.main"]
exec(BLOCKED_IMPORTS)
from mtcon_ray.cli.main import main

main(["jobs", "--json"])
"""


class Dashboard(BaseHTTPRequestHandler):
    """A cluster's dashboard with one job, for who sends its token."""

    ray_version = version("ray")

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == "Bearer abc"
        answers = {"/api/version": {"ray_version": self.ray_version}, "/api/jobs/": [DETAILS]}
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(json.dumps(answers[self.path] if allowed else "no token").encode())

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


@pytest.fixture
def dashboard() -> Iterator[str]:
    """Address of a dashboard without a cluster."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Dashboard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_token_does_not_follow_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that it leads to may be another one."""
    sent: list[str | None] = []

    class Elsewhere(Dashboard):
        def do_GET(self) -> None:
            sent.append(self.headers["Authorization"])
            self.send_response(302 if self.path == "/api/version" else 404)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(MtconError):
            Jobs(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert sent == ["Bearer abc", None]


def test_jobs_are_listed_without_ray(dashboard: str) -> None:
    """Importing Ray takes seconds."""
    environment = {**os.environ, "RAY_API_SERVER_ADDRESS": dashboard, "RAY_AUTH_TOKEN": "abc"}
    environment.pop("RAY_AUTH_MODE", None)
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY], env=environment, cwd=REPOSITORY, text=True,
        capture_output=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert [job["id"] for job in json.loads(told.stdout)] == ["small-1-1"]


@pytest.mark.parametrize("place", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "HOME"])
def test_the_token_is_sent_from_where_ray_finds_it(
    place: str, dashboard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"must be given its token, got 401 .*RAY_AUTH_MODE=token"):
        Jobs(dashboard)
    path = tmp_path / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("abc\n")
    given = {"RAY_AUTH_TOKEN": "abc", "RAY_AUTH_TOKEN_PATH": str(path), "HOME": str(tmp_path)}
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv(place, given[place])
    assert [job.id for job in Jobs(dashboard).known()] == ["small-1-1"]
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(UserError, match="got 401"):
        Jobs(dashboard)


@pytest.mark.parametrize(
    "token", [b"SECRET\nsecond\n", b"\xffSECRET\n", "SECRET\u00e9".encode(), b"SECRET\x01"]
)
@pytest.mark.parametrize("place", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_a_token_that_no_header_can_hold_is_not_shown(
    place: str, token: bytes, dashboard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(variable, raising=False)
    path = tmp_path / "auth_token"
    path.write_bytes(token)
    named = place == "RAY_AUTH_TOKEN_PATH"
    monkeypatch.setenv(place, str(path) if named else os.fsdecode(token))
    told = CliRunner().invoke(program, ["jobs", "--address", dashboard, "-v"])
    assert told.exit_code == 2
    where = path if named else place
    assert f"token in {where} must be one line of printable ASCII" in told.stderr
    assert "SECRET" not in told.output


def test_a_cluster_has_the_same_minor_version_of_ray(
    dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its patch version may differ."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    here = version("ray")
    major, minor, _ = here.split(".", 2)
    monkeypatch.setattr(Dashboard, "ray_version", f"{major}.{minor}.99")
    assert Jobs(dashboard).known()
    for other in (f"{major}.{minor}1.0", f"{int(major) + 1}.{minor}.0"):
        monkeypatch.setattr(Dashboard, "ray_version", other)
        told = re.escape(
            f"must run a Ray {major}.{minor} as this environment does ({here}), got {other}; "
        )
        with pytest.raises(UserError, match=told):
            Jobs(dashboard)


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


@pytest.mark.parametrize("given", ["http://[", "http://", "head:port", "head:0", ""])
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(UserError, match=r"must be the dashboard's, as http://head:8265"):
        checked_address(given)


@pytest.mark.ray
def test_nobody_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument wins over RAY_API_SERVER_ADDRESS, which Ray itself would prefer."""
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8")
    with pytest.raises(MtconError, match=r"no Ray cluster answers at http://127\.0\.0\.1:9;"):
        Jobs("127.0.0.1:9")


def test_a_cluster_that_is_lost_under_a_job_is_told_with_the_way_to_continue(
    dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    answers = [
        Job.model_validate({**DETAILS, "status": "PENDING", "metadata": {"sweep": "small-1"}})
    ]

    def ask(jobs: Jobs, job_id: str) -> Job:
        if not answers:
            raise MtconError("no Ray cluster answers")
        return answers.pop()

    monkeypatch.setattr(Jobs, "_job", ask)
    told = "no Ray cluster answers; `mtcon-ray submit` with --name small-1 continues its sweep"
    with pytest.raises(MtconError, match=re.escape(told)):
        Jobs(dashboard).follow("small-1-1", print)


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
    said = lost(Job.model_validate({**DETAILS, "message": message, "error_type": error_type}))
    assert told in said
    assert "line 29" in said
    assert "line 21" not in said
