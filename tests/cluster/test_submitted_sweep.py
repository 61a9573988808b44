"""A sweep as a job of a cluster: submitted, listed, followed, stopped and submitted again.

All tests share a head, which takes long to start. They are in the order of the sweep's life:
fixtures of later tests stop and resume the sweep that the earlier tests find running.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from mtcon_ray.records.results import load_sweep
from tests.cluster.conftest import environment_of, head_of, make_token
from tests.cluster.user import PLUGIN, SPEC, Ended, User, ended
from tests.waiting import wait_until

pytestmark = pytest.mark.ray


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
    make_token(environment)
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


class Stopped(NamedTuple):
    """The ends of `logs --follow` and of `stop`, and the epoch of the last checkpoint."""

    followed: Ended
    stop: Ended
    statuses: list[str]
    epoch: int


@pytest.fixture(scope="module")
def stopped(cluster: Cluster, interrupted: Ended) -> Stopped:
    """The sweep as it was stopped."""
    assert interrupted.code == 130
    both = [cluster.user.begin("logs", "small-1", "-f"), cluster.user.begin("stop", "small-1")]
    followed, stop = map(ended, both)
    trials = load_sweep(cluster.sweep).trials
    return Stopped(followed, stop, [trial.status for trial in trials], trials[0].last_epoch)


@pytest.fixture(scope="module")
def resumed(cluster: Cluster, stopped: Stopped) -> Ended:
    """The sweep resumed as another job, which nobody follows."""
    options = ("--name", "small-1", "--allow-plugins", "--no-follow")
    return cluster.user.run("submit", "spec.yaml", *options)


def test_ctrl_c_ends_the_following_alone(cluster: Cluster, interrupted: Ended) -> None:
    code, printed = interrupted
    assert code == 130
    assert printed.startswith("job small-1-1\n")
    assert "\nresults: ~/mtcon-ray, as the cluster's head sees it\n" in printed
    assert f"dashboard: {cluster.address}/#/jobs/small-1-1\n" in printed
    assert "small-1-1 continues; `mtcon-ray logs small-1-1 -f` follows it again" in printed


@pytest.mark.usefixtures("interrupted")
def test_a_second_driver_and_a_wrong_token_are_refused(cluster: Cluster) -> None:
    user = cluster.user
    again = user.begin("submit", "spec.yaml", "--name", "small-1", "--allow-plugins")
    wrong = user.begin("list", "--cluster", RAY_AUTH_TOKEN="0" * 64, RAY_AUTH_TOKEN_PATH="")
    refused, unknown = ended(again), ended(wrong)
    assert (refused.code, unknown.code) == (2, 2)
    assert "'small-1' is already running as job small-1-1; follow it with" in refused.printed
    assert "refused: Authentication failed" in unknown.printed


def test_a_sweep_is_stopped_with_its_checkpoints(stopped: Stopped) -> None:
    printed = stopped.stop.printed
    assert printed.startswith("stopping small-1-1, which saves its checkpoints first\n")
    told = "small-1-1 stopped; to continue: repeat `mtcon-ray submit` with --name small-1\n"
    assert printed.endswith(told)
    code, followed = stopped.followed
    assert code == 130
    assert "stopped by SIGTERM; checkpoints are kept; to continue: repeat `mtcon-" in followed
    assert stopped.statuses == ["INTERRUPTED"]


def test_a_resumed_sweep_goes_on_as_another_job(
    cluster: Cluster, stopped: Stopped, resumed: Ended
) -> None:
    assert resumed.code == 0
    wait_until(lambda: load_sweep(cluster.sweep).trials[0].last_epoch > stopped.epoch, "an epoch")
    code, printed = cluster.user.run("list", "--cluster", "--json")
    assert code == 0
    found = {job["id"]: job["status"] for job in json.loads(printed) if job["sweep"]}
    assert found == {"small-1-1": "STOPPED", "small-1-2": "RUNNING"}


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
