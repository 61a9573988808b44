"""Jobs through Ray's client, on a dashboard without a cluster: token, address, errors, log.

The environment of a job has its files, variables, versions and packages, and no secret.
"""

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
from zipfile import ZipFile

import pytest
import yaml
from ray._private.runtime_env.packaging import create_package

from mtcon_ray.cluster import jobs
from mtcon_ray.cluster.jobs import Job, Jobs
from mtcon_ray.errors import MtconError, UserError
from tests.cli.conftest import accepted, refused, run

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
def test_no_token_is_shown(token: str, dashboard: str, give_token: Callable[[str], None]) -> None:
    """These tokens fit into no header."""
    give_token(token)
    told = run("list", "--cluster", "--address", dashboard, "-v")
    assert told.exit_code == 2
    assert "token" in told.stderr
    assert "SECRET" not in told.output


def test_jobs_are_listed(dashboard: str) -> None:
    (job,) = json.loads(accepted("list", "--address", dashboard, "--json").stdout)
    assert (job["id"], job["sweep"], job["status"]) == ("by-hand", "", "FAILED")
    _, line = accepted("list", "--address", dashboard).stdout.splitlines()
    assert line.split()[0] == "by-hand"


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


@pytest.mark.parametrize(("end", "code"), [("SUCCEEDED", 0), ("STOPPED", 130), ("FAILED", 3)])
def test_a_log_is_passed_on_once(
    end: str, code: int, dashboard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last: dict[str, Any] = {"status": end, "driver_exit_code": 3 if end == "FAILED" else None}
    states = [{"status": "PENDING"}, {"status": "RUNNING"}, last]
    found = [Job.model_validate({"submission_id": "small-1-1", **state}) for state in states]
    monkeypatch.setattr("mtcon_ray.cluster.jobs.time.sleep", lambda seconds: None)
    known = Jobs(dashboard)
    monkeypatch.setattr(known, "logs", Mock(side_effect=["", "one\ntw", "one\ntwo\nthree\n"]))
    monkeypatch.setattr(known, "job", Mock(side_effect=found))
    written: list[str] = []
    assert known.follow("small-1-1", written.append) == code
    assert "".join(written) == "one\ntwo\nthree\n"


@pytest.mark.parametrize(("storage", "options"), [({}, ["--root", "out"]), ({"root": "out"}, [])])
def test_a_root_that_the_job_would_lose_is_refused(
    storage: dict[str, str], options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative root would be in Ray's copy of the working directory, which Ray deletes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({"name": "small", "storage": storage}))
    assert "root must" in refused("submit", "spec.yaml", "--address", "127.0.0.1:9", *options)


@pytest.mark.parametrize("has_code", [True, False])
def test_without_consent_no_code_is_uploaded(tmp_path: Path, has_code: bool) -> None:
    """By Ray's own packing, also if the folder's files of patterns ask for its modules."""
    folder = tmp_path / "work"
    code = ["numpy.py", "deep/yaml/__init__.py", "a.so", "x.dist-info/entry_points.txt"]
    kept = ["a.yaml", "deep/labels.csv", "pylist.txt", ".gitignore", ".rayignore"]
    for name in (*code, *kept, "ignored.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".rayignore").write_text("ignored.txt\n!numpy.py\n!*.py\n!x.dist-info/")
    (folder / ".gitignore").write_text("!numpy.py\n!*.so\n")
    environment = jobs.job_environment(folder, {}, None, has_code=has_code)
    package = tmp_path / "package.zip"
    excludes = environment["excludes"]
    create_package(environment["working_dir"], package, include_gitignore=True, excludes=excludes)
    with ZipFile(package) as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
    assert names == {*kept, *(code if has_code else ())}


def test_tracking_is_passed_to_a_job_and_no_key() -> None:
    places = {"MLFLOW_TRACKING_URI": "http://mlflow:5000", "AWS_ENDPOINT_URL": "http://store:9000"}
    found = jobs.job_variables({**places, "AWS_SECRET_ACCESS_KEY": "canary"}, ["python", "a.py"])
    assert found == {**places, jobs.VERSIONS_VARIABLE: json.dumps(jobs.versions())}
    environment = jobs.job_environment(Path(), found, None, has_code=False)
    assert environment["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "60", **found}
    assert "pip" not in environment


def test_a_password_is_refused() -> None:
    environ = {"MLFLOW_TRACKING_URI": "postgresql://me:hunter2@host/db"}
    command = ["python", "a.py", "--set", "tracking.uri=http://me:hunter2@host"]
    for one, other in ((environ, []), ({}, command)):
        with pytest.raises(UserError, match="holds a password") as told:
            jobs.job_variables(one, other)
        assert "hunter2" not in str(told.value)


def test_packages_are_installed_by_pip_and_hold_no_password(tmp_path: Path) -> None:
    path = tmp_path / "needed.txt"
    path.write_text("timm>=1.0  # encoders\n")
    environment = jobs.job_environment(tmp_path, {}, path, has_code=False)
    assert environment["pip"] == str(path)
    assert environment["config"]["setup_timeout_seconds"] > 600, "Ray's own, for gigabytes"
    path.write_text("timm\nx @ https://me:hunter2@host/x.whl\n")
    with pytest.raises(UserError, match="holds a password") as told:
        jobs.job_environment(tmp_path, {}, path, has_code=False)
    assert "hunter2" not in str(told.value)


def test_a_job_finds_the_versions_of_whoever_submitted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop without a GPU may submit to a cluster with GPUs."""
    here = {"ray": "2.60.0", "python": "3.12.4", "torch": "2.15.0+cpu"}
    monkeypatch.setattr(jobs, "version", lambda name: here.get(name, "1.0"))
    monkeypatch.setattr(jobs, "python_version", lambda: here["python"])
    monkeypatch.setenv(jobs.VERSIONS_VARIABLE, json.dumps(jobs.versions()))
    here.update(ray="2.60.3", python="3.12.11", torch="2.15.0+cu130")
    jobs.check_versions()
    here["ray"] = "2.61.0"
    with pytest.raises(UserError, match=r"has ray 2\.61 \(you: 2\.60\); install"):
        jobs.check_versions()
    monkeypatch.delenv(jobs.VERSIONS_VARIABLE)
    jobs.check_versions()
