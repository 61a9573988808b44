"""Sweeps as jobs of a cluster: submit, list, follow, stop and resume."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
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
from mtcon_ray.results import load_sweep
from tests.cli.screens import HIDE_CURSOR, SHOW_CURSOR, Watched, screen
from tests.waiting import PATIENCE_SECONDS, wait_until

REPOSITORY = Path(__file__).parents[2]
SPEC: dict[str, Any] = {
    "name": "small",
    "data": {"kind": "synthetic", "num_items": 300},
    "views": {"size": 16},
    "model": {"encoder": {"name": "small", "width": 8}},
    "train": {"epochs": 5000, "warmup_epochs": 0, "batch_size": 32},
    "evaluate": {"every": 100, "bootstrap": 20},
    "tracking": {"offline": True, "uri": "http://127.0.0.1:9"},
    "search": {
        "space": {"method.temperature": {"grid": [0.1]}},
        "sampler": "grid",
        "scheduler": {"name": "none"},
    },
}
SCRIPT = """
import sys
from mtcon_ray.cli.main import main

if __name__ == "__main__":
    main(["sweep", "spec.yaml", *sys.argv[1:]])
"""


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
WAIT_IN_VAIN = """
import sys
from mtcon_ray.cluster.jobs import Jobs

Jobs(sys.argv[1]).wait_until_ended("small-1-1", limit=0)
"""


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


class Dashboard(BaseHTTPRequestHandler):
    """A cluster's dashboard with one job, for who sends its token."""

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == "Bearer abc"
        answers = {"/api/version": {"ray_version": version("ray")}, "/api/jobs/": [DETAILS]}
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


@pytest.mark.ray
@pytest.mark.parametrize("way", ["option", "spec"])
def test_a_root_that_the_job_would_lose_is_refused(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative root would be in Ray's copy of the working directory, which Ray deletes."""
    monkeypatch.chdir(tmp_path)
    storage = {"storage": {"root": "results"}} if way == "spec" else {}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, **storage}))
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


class User:
    """A user of a cluster, who runs the program in a folder with a spec and a script."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        (folder / "mtcon_ray").symlink_to(REPOSITORY / "mtcon_ray")
        (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
        (folder / "script.py").write_text(SCRIPT)
        self.folder = folder
        self.environment = {**environment, "PYTHONPATH": str(REPOSITORY)}

    def begin(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Starts a command of mtcon-ray in the background."""
        return subprocess.Popen(
            [sys.executable, "-m", "mtcon_ray", *command],
            env={**self.environment, **variables}, cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def watch(self, *command: str) -> Watched:
        """Starts a command of mtcon-ray on a terminal."""
        program = [sys.executable, "-m", "mtcon_ray", *command]
        return Watched(program, self.environment, self.folder)

    def run(self, *command: str) -> tuple[int, str]:
        """Runs a command of mtcon-ray; returns exit code and output."""
        return ended(self.begin(*command))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"no end of {process.args!r}") from None
    return process.returncode, output


def assert_followed_as_in_a_log(written: str) -> None:
    """A waiting line that goes, then the job's plain lines, and the cursor is back."""
    assert "job script-1-1 is " in written
    assert (written.count(HIDE_CURSOR), written.count(SHOW_CURSOR)) == (1, 1)
    shown = screen(written, 200)
    assert shown[0].startswith("job script-1-1: ")
    assert not any(line.startswith("job script-1-1 is ") for line in shown)
    [start] = [place for place, line in enumerate(shown) if line == "[ 0:00] starting"]
    log = "\n".join(shown[start:])
    assert "] trial-0000 started: no searched fields\n" in log
    assert re.search(
        r"\] trial-0000 finished, val/accuracy 0\.\d{3}; 1/1 done; best 0\.\d{3} \(", log
    )
    assert "] script-1 ended: 1/1 done\n\n#  trial" in log
    assert "\nwinner: trial-0000" in log


@pytest.mark.ray
def test_a_sweep_is_submitted_shown_stopped_and_goes_on(
    tmp_path: Path, home: dict[str, str], head: Callable[[], str]
) -> None:
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=home, check=True, capture_output=True
    )
    address = head()
    # The client has another home folder: results must be in the head's.
    token, client = tmp_path / ".ray" / "auth_token", tmp_path / "client"
    environment = {
        **home, "RAY_API_SERVER_ADDRESS": address, "AWS_SECRET_ACCESS_KEY": "canary",
        "HOME": str(client), "RAY_AUTH_TOKEN_PATH": str(token),
    }  # fmt: skip
    user = User(tmp_path / "work", environment)
    sweep = tmp_path / "mtcon-ray" / "sweeps" / "small-1"
    last = sweep / "checkpoints" / "trial-0000" / "last.pt"

    # Ctrl-C ends only the following of the log, not the job.
    following = user.begin("submit", "spec.yaml")
    wait_until(last.exists, "checkpoint", process=following, told=lambda: ended(following))
    following.send_signal(signal.SIGINT)
    code, printed = ended(following)
    assert code == 130
    assert printed.startswith("job small-1-1: ")
    assert "\nresults: ~/mtcon-ray, as the cluster's head sees it\n" in printed
    assert f"dashboard: {address}/#/jobs/small-1-1\nMLflow: http://127.0.0.1:9\n" in printed
    assert "small-1-1 goes on; `mtcon-ray logs small-1-1 -f` follows it again" in printed

    # A script can be a job too; this one ends while the first is running.
    script = user.watch(
        "submit", "script.py", "--set", "train.epochs=1", "--set", "evaluate.every=1",
        "--set", "search.space={}", "--set", "search.sampler=random",
        "--set", "search.num_trials=1",
    )  # fmt: skip

    # A second driver is rejected by the list of jobs, by the lock or by the token.
    raw = [
        "ray", "job", "submit", "--address", address, "--working-dir", ".", "--",
        "python", "-m", "mtcon_ray", "sweep", "spec.yaml", "--name", "small-1", "--continue",
    ]  # fmt: skip
    others = [
        user.begin("submit", "spec.yaml", "--name", "small-1"),
        subprocess.Popen(
            raw, env={**environment, "RAY_AUTH_MODE": "token"}, cwd=user.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ),
        user.begin("jobs", RAY_AUTH_TOKEN="0" * 64),
        subprocess.Popen(
            [sys.executable, "-c", WAIT_IN_VAIN, address], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ),
    ]  # fmt: skip
    (code, again), (_, locked), (wrong_code, wrong), (_, waited) = map(ended, others)
    assert "job small-1-1 must end within 0 s, got one that is still running" in waited
    assert (code, wrong_code) == (2, 2)
    assert "got job small-1-1 that is; follow it with" in again
    assert "'small-1' must have one driver at a time" in locked
    assert "must be given its token, got 403 Forbidden: Invalid authentication token" in wrong

    both = [user.begin("logs", "small-1", "-f"), user.begin("stop", "small-1")]
    (code, printed), (_, stopping) = map(ended, both)
    assert stopping.startswith("stopping small-1-1, which saves its checkpoints first\n")
    assert stopping.endswith("small-1-1 stopped; to go on: `mtcon-ray resume small-1`\n")
    assert code == 130
    assert "stopped by SIGTERM; trials are checkpointed; to go on: `mtcon-ray resume s" in printed
    assert [t.status for t in load_sweep(sweep).trials] == ["INTERRUPTED"]
    stopped_at = load_sweep(sweep).trials[0].last_epoch

    code, printed = user.run("resume", "small-1", "--no-follow")
    assert code == 0
    assert "MLflow: http://127.0.0.1:9\n" in printed
    wait_until(lambda: load_sweep(sweep).trials[0].last_epoch > stopped_at, "further epoch")
    code, written = script.ended()
    assert code == 0, written
    assert_followed_as_in_a_log(written)
    assert user.run("stop", "script-1") == (0, "script-1-1 has ended already: succeeded\n")
    code, printed = user.run("logs", "script-1")
    assert code == 0
    assert "[ 0:00] starting\n" in printed
    assert "] preparing: connecting to Ray at " in printed
    assert "] trial-0000 started: no searched fields\n" in printed
    assert "] script-1 ended: 1/1 done\n\n#  trial" in printed
    code, printed = user.run("jobs", "--json")
    found = {job["id"]: job["status"] for job in json.loads(printed) if job["sweep"]}
    assert found == {"small-1-1": "STOPPED", "script-1-1": "SUCCEEDED", "small-1-2": "RUNNING"}
    assert not (client / "mtcon-ray").exists()
    assert os.stat(sweep).st_mode & 0o077 == 0
    written = "".join(p.read_text(errors="replace") for p in sweep.rglob("*") if p.is_file())
    assert "canary" not in written
