"""One sweep and one script as jobs of a cluster: submitted, listed, followed, stopped, resumed.

All tests share a head, which takes long to start. They are in the order of the sweep's life:
fixtures of later tests stop and resume the sweep that the earlier tests find running.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from mtcon_ray.results import load_sweep
from tests.cli.screens import HIDE_CURSOR, SHOW_CURSOR, Watched, screen
from tests.cluster.conftest import environment_of, head_of
from tests.cluster.user import SPEC, Ended, User, ended
from tests.waiting import wait_until

pytestmark = pytest.mark.ray

SCRIPT = "experiments/sweep_temperature.py"
SHORT = [
    "data.num_items=300", "views.size=16", "model.encoder.width=8", "train.epochs=2",
    "search.space={}", "search.sampler=random", "search.num_trials=1", "search.scheduler=none",
    "tracking.offline=true",
]  # fmt: skip
# Uploaded with the folder. Only jobs that pass the user's consent on can train this encoder. It
# waits, since a trial that trains all the time would take the cores from the commands tested.
PLUGIN = """
import time
from typing import Literal
from mtcon_ray.models.encoders.base import ENCODERS
from mtcon_ray.models.encoders.small import Small

@ENCODERS.register("own")
class Own(Small):
    class Spec(Small.Spec):
        name: Literal["own"] = "own"

    def forward(self, x):
        time.sleep(0.3)
        return super().forward(x)
"""
WAIT_IN_VAIN = """
import sys
from mtcon_ray.cluster.jobs import Jobs

Jobs(sys.argv[1]).wait_until_ended("small-1-1", limit=0)
"""


class Cluster(NamedTuple):
    """A head that requires a token, its user, and the home folders of both sides."""

    address: str
    user: User
    client_home: Path
    sweep: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yields a cluster whose head has another home folder than its client."""
    home = tmp_path_factory.mktemp("head")
    environment = environment_of(home)
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=environment, check=True, capture_output=True
    )
    with head_of(environment) as start:
        address = start()
        client = home / "client"
        of_user = {
            **environment, "RAY_API_SERVER_ADDRESS": address, "AWS_SECRET_ACCESS_KEY": "canary",
            "HOME": str(client), "RAY_AUTH_TOKEN_PATH": str(home / ".ray" / "auth_token"),
        }  # fmt: skip
        user = User(home / "work", of_user)
        (user.folder / "own.py").write_text(PLUGIN)
        spec = {**SPEC, "plugins": ["own"], "model": {"encoder": {"name": "own", "width": 8}}}
        (user.folder / "spec.yaml").write_text(yaml.safe_dump(spec))
        yield Cluster(address, user, client, home / "mtcon-ray" / "sweeps" / "small-1")


@pytest.fixture(scope="module")
def interrupted(cluster: Cluster) -> Ended:
    """Submission of the sweep, whose following Ctrl-C ended after the first checkpoint."""
    following = cluster.user.begin("submit", "spec.yaml", "--allow-plugins")
    last = cluster.sweep / "checkpoints" / "trial-0000" / "last.pt"
    wait_until(last.exists, "checkpoint", process=following, told=lambda: ended(following))
    following.send_signal(signal.SIGINT)
    return ended(following)


@pytest.fixture(scope="module")
def watched(cluster: Cluster, interrupted: Ended) -> Watched:
    """A short sweep by a script, submitted on a terminal while the other sweep runs."""
    program = [sys.executable, "-m", "mtcon_ray", "submit", SCRIPT]
    changes = [word for change in SHORT for word in ("--set", change)]
    return Watched([*program, *changes], cluster.user.environment, cluster.user.folder)


@pytest.fixture(scope="module")
def script(watched: Watched) -> Ended:
    return Ended(*watched.ended())


class Stopped(NamedTuple):
    """The ends of `logs --follow` and of `stop`, and the epoch of the last checkpoint."""

    followed: Ended
    stop: Ended
    statuses: list[str]
    epoch: int


@pytest.fixture(scope="module")
def stopped(cluster: Cluster, script: Ended) -> Stopped:
    """The sweep as it was stopped, after the script had ended."""
    both = [
        cluster.user.begin("logs", "small-1", "-f"),
        cluster.user.begin("stop", "small-1"),
    ]
    followed, stop = map(ended, both)
    trials = load_sweep(cluster.sweep).trials
    return Stopped(followed, stop, [trial.status for trial in trials], trials[0].last_epoch)


@pytest.fixture(scope="module")
def resumed(cluster: Cluster, stopped: Stopped) -> Ended:
    """The sweep resumed as another job, which nobody follows."""
    return cluster.user.run("resume", "small-1", "--no-follow")


def test_ctrl_c_ends_the_following_alone(cluster: Cluster, interrupted: Ended) -> None:
    code, printed = interrupted
    assert code == 130
    assert printed.startswith("job small-1-1: ")
    assert "\nresults: ~/mtcon-ray, as the cluster's head sees it\n" in printed
    dashboard = f"dashboard: {cluster.address}/#/jobs/small-1-1"
    assert f"{dashboard}\nMLflow: http://127.0.0.1:9\n" in printed
    assert "small-1-1 goes on; `mtcon-ray logs small-1-1 -f` follows it again" in printed


@pytest.mark.usefixtures("watched")  # the script's job runs meanwhile
def test_a_second_driver_a_wrong_token_and_an_end_in_vain_are_refused(cluster: Cluster) -> None:
    """A second driver is rejected by the list of jobs, or else by the lock."""
    user = cluster.user
    raw = (
        "ray", "job", "submit", "--address", cluster.address, "--working-dir", ".", "--",
        "python", "-m", "mtcon_ray", "sweep", "spec.yaml", "--name", "small-1", "--continue",
        "--allow-plugins",
    )  # fmt: skip
    # All four at once: each takes long to import Ray.
    again, locked, wrong, waited = map(
        ended,
        [
            user.begin("submit", "spec.yaml", "--name", "small-1", "--allow-plugins"),
            user.begin_program(*raw, RAY_AUTH_MODE="token"),
            user.begin("jobs", RAY_AUTH_TOKEN="0" * 64),
            user.begin_program(sys.executable, "-c", WAIT_IN_VAIN, cluster.address),
        ],
    )
    assert again.code == 2
    assert "got job small-1-1 that is; follow it with" in again.printed
    assert "'small-1' must have one driver at a time" in locked.printed
    assert wrong.code == 2
    assert (
        "must be given its token, got 403 Forbidden: Invalid authentication token" in wrong.printed
    )
    assert "job small-1-1 must end within 0 s, got one that is still running" in waited.printed


def test_a_script_is_followed_as_in_a_log(script: Ended) -> None:
    """A waiting line that goes, then the job's plain lines, and the cursor is back."""
    code, written = script
    assert code == 0, written
    assert "job sweep_temperature-1-1 is " in written
    assert (written.count(HIDE_CURSOR), written.count(SHOW_CURSOR)) == (1, 1)
    shown = screen(written, 200)
    assert shown[0].startswith("job sweep_temperature-1-1: ")
    assert not any(line.startswith("job sweep_temperature-1-1 is ") for line in shown)
    [start] = [place for place, line in enumerate(shown) if line == "[ 0:00] starting"]
    log = "\n".join(shown[start:])
    assert "] trial-0000 started: no searched fields\n" in log
    assert re.search(
        r"\] trial-0000 finished, val/accuracy 0\.\d{3}; 1/1 done; best 0\.\d{3} \(", log
    )
    assert re.search(r"\] sweep_temperature-1 ended: 1/1 done; best 0\.\d+ \(.*\)\n\n#  trial", log)
    assert "\nwinner: trial-0000" in log


def test_logs_of_an_ended_job_are_shown_whole(cluster: Cluster, script: Ended) -> None:
    assert cluster.user.run("stop", "sweep_temperature-1") == (
        0,
        "sweep_temperature-1-1 has ended already: succeeded\n",
    )
    code, printed = cluster.user.run("logs", "sweep_temperature-1")
    assert code == 0
    assert "[ 0:00] starting\n" in printed
    assert "] preparing: connecting to Ray at " in printed
    assert "] trial-0000 started: no searched fields\n" in printed
    assert re.search(
        r"\] sweep_temperature-1 ended: 1/1 done; best 0\.\d+ \(.*\)\n\n#  trial", printed
    )


def test_a_sweep_is_stopped_with_its_checkpoints(stopped: Stopped) -> None:
    printed = stopped.stop.printed
    assert printed.startswith("stopping small-1-1, which saves its checkpoints first\n")
    assert printed.endswith("small-1-1 stopped; to go on: `mtcon-ray resume small-1`\n")
    code, followed = stopped.followed
    assert code == 130
    assert "stopped by SIGTERM; trials are checkpointed; to go on: `mtcon-ray resume s" in followed
    assert stopped.statuses == ["INTERRUPTED"]


def test_a_resumed_sweep_goes_on_as_another_job(
    cluster: Cluster, stopped: Stopped, resumed: Ended
) -> None:
    assert resumed.code == 0
    assert "MLflow: http://127.0.0.1:9\n" in resumed.printed
    wait_until(
        lambda: load_sweep(cluster.sweep).trials[0].last_epoch > stopped.epoch, "further epoch"
    )
    code, printed = cluster.user.run("jobs", "--json")
    assert code == 0
    found = {job["id"]: job["status"] for job in json.loads(printed) if job["sweep"]}
    assert found == {
        "small-1-1": "STOPPED",
        "sweep_temperature-1-1": "SUCCEEDED",
        "small-1-2": "RUNNING",
    }


def test_results_are_the_head_s_private_and_without_secrets(
    cluster: Cluster, resumed: Ended
) -> None:
    assert resumed.code == 0
    # A running sweep replaces files while they are read.
    assert cluster.user.run("stop", "small-1").code == 0
    assert not (cluster.client_home / "mtcon-ray").exists()
    assert os.stat(cluster.sweep).st_mode & 0o077 == 0
    files = [path for path in cluster.sweep.rglob("*") if path.is_file()]
    assert files
    assert not any("canary" in path.read_text(errors="replace") for path in files)
