"""Jobs through Ray's client, on a dashboard without a cluster: token, address, errors, log."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from click.testing import CliRunner

from mtcon_ray.cli.main import program
from mtcon_ray.cluster import jobs
from mtcon_ray.cluster.jobs import Job, Jobs
from mtcon_ray.errors import MtconError, UserError

pytestmark = pytest.mark.ray
RAYLET: Any = import_module("ray._raylet")  # without types
# A job that another program submitted, as the Jobs API describes it.
DETAILS = {
    "type": "SUBMISSION", "submission_id": "by-hand", "entrypoint": "x", "status": "FAILED",
    "message": "\n".join(f"line {number}" for number in range(30)),
}  # fmt: skip


class Dashboard(BaseHTTPRequestHandler):
    """A cluster's dashboard with one job, for clients that send its token."""

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == "Bearer abc"
        answers = {
            "/api/version": {"ray_version": version("ray")},
            "/api/jobs/": [DETAILS],
            "/api/jobs/by-hand": DETAILS,
            "/api/jobs/by-hand/logs": {"logs": "said\n"},
        }
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


@pytest.fixture(autouse=True)
def give_token(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Gives Ray's client another token than "abc"; the client keeps a token that it has read."""

    def forget() -> None:
        RAYLET.Config.initialize("")
        RAYLET.AuthenticationTokenLoader.instance().reset_cache()

    def give(token: str) -> None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
        forget()

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8")
    give("abc")
    yield give
    monkeypatch.undo()
    forget()


def test_the_token_is_sent_and_a_wrong_one_is_told(
    dashboard: str, give_token: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Jobs(dashboard)
    assert [job.id for job in known.known()] == ["by-hand"]
    assert known.logs("by-hand") == "said\n"
    give_token("def")
    with pytest.raises(UserError, match=r"refused: .*; set RAY_AUTH_MODE=token"):
        Jobs(dashboard)
    monkeypatch.delenv("RAY_AUTH_MODE")
    with pytest.raises(UserError):
        Jobs(dashboard)
    assert os.environ["RAY_AUTH_MODE"] == "token"


@pytest.mark.parametrize("token", ["SECRET\nsecond", "SECRET\u00e9", "SECRET\x01"])
def test_a_token_that_no_header_can_hold_is_not_shown(
    token: str, dashboard: str, give_token: Callable[[str], None]
) -> None:
    give_token(token)
    told = CliRunner().invoke(program, ["list", "--cluster", "--address", dashboard, "-v"])
    assert told.exit_code == 2
    assert "token" in told.stderr
    assert "SECRET" not in told.output


def test_jobs_are_listed(dashboard: str) -> None:
    told = CliRunner().invoke(program, ["list", "--address", dashboard, "--json"])
    assert told.exit_code == 0, told.output
    (job,) = json.loads(told.stdout)
    assert (job["id"], job["sweep"], job["status"]) == ("by-hand", "", "FAILED")
    told = CliRunner().invoke(program, ["list", "--address", dashboard])
    assert told.stdout.splitlines()[1].split()[:1] == ["by-hand"]


@pytest.mark.parametrize("given", ["127.0.0.1:9", "http://[", "head:port", "ray://head:10001"])
def test_no_cluster_is_told(given: str) -> None:
    """The argument wins over RAY_API_SERVER_ADDRESS, which Ray itself would prefer."""
    told = r"no Ray cluster takes jobs at http://.*start one as"
    with pytest.raises(MtconError, match=rf"{told}|be http://HEAD:8265, .* got 'ray://head:10001'"):
        Jobs(given)


def test_a_head_that_has_just_been_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcon_ray.cluster.jobs.time.sleep", lambda seconds: None)
    refusal, other = RuntimeError("No available agent"), RuntimeError("another reason")
    submit = Mock(side_effect=[refusal, "small-1-1", other])
    assert jobs.retried(submit, 60, "No available agent") == "small-1-1"
    with pytest.raises(RuntimeError, match="another reason"):
        jobs.retried(submit, 60, "No available agent")


def test_a_job_without_an_exit_code_says_why(dashboard: str) -> None:
    """Only the end of a long trace is shown."""
    written: list[str] = []
    with pytest.raises(MtconError, match="by-hand ended without an exit code") as told:
        Jobs(dashboard).follow("by-hand", written.append)
    assert written == ["said\n"]
    assert "line 29" in str(told.value)
    assert "line 21" not in str(told.value)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"status": "SUCCEEDED"}, 0),
        ({"status": "STOPPED"}, 130),
        ({"status": "FAILED", "driver_exit_code": 3}, 3),
    ],
)
def test_a_log_is_passed_on_once(
    end: dict[str, Any], code: int, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [{"status": "PENDING"}, {"status": "RUNNING"}, end]
    found = [Job.model_validate({"submission_id": "small-1-1", **state}) for state in states]
    monkeypatch.setattr("mtcon_ray.cluster.jobs.time.sleep", lambda seconds: None)
    known = Jobs(dashboard)
    monkeypatch.setattr(known, "logs", Mock(side_effect=["", "one\ntw", "one\ntwo\nthree\n"]))
    monkeypatch.setattr(known, "job", Mock(side_effect=found))
    written: list[str] = []
    assert known.follow("small-1-1", written.append) == code
    assert "".join(written) == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("storage", "options"), [({}, ["--root", "results"]), ({"root": "results"}, [])]
)
def test_a_root_that_the_job_would_lose_is_refused(
    storage: dict[str, str], options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative root would be in Ray's copy of the working directory, which Ray deletes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({"name": "small", "storage": storage}))
    words = ["submit", "spec.yaml", "--address", "127.0.0.1:9", *options]
    told = CliRunner().invoke(program, words)
    assert told.exit_code == 2
    assert "root must" in told.output
