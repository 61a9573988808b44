"""A sweep as a job of a cluster: submitted, listed, followed, stopped and submitted again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from mtcon_ray.records.results import load_sweep
from tests.cluster.conftest import head_of
from tests.cluster.user import PLUGIN, SPEC
from tests.processes import REPOSITORY
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.ray


class Ended(NamedTuple):
    """Exit code of a command, and all that it printed."""

    code: int
    printed: str


class User:
    """A user of a cluster, who runs the program in a folder like a checkout, with a spec.

    The user has another home folder than the head of the cluster.
    """

    def __init__(self, home: Path, environment: dict[str, str], address: str) -> None:
        self.folder = home / "work"
        self.folder.mkdir()
        (self.folder / "mtcon_ray").symlink_to(REPOSITORY / "mtcon_ray")
        shutil.copytree(REPOSITORY / "experiments", self.folder / "experiments")
        (self.folder / "own.py").write_text(PLUGIN)
        spec = {**SPEC, "plugins": ["own"], "model": {"encoder": {"name": "own", "width": 8}}}
        (self.folder / "spec.yaml").write_text(yaml.safe_dump(spec))
        self.environment = {
            **environment, "PYTHONPATH": str(REPOSITORY), "AWS_SECRET_ACCESS_KEY": "canary",
            "RAY_API_SERVER_ADDRESS": address, "HOME": str(home / "client"),
            "RAY_AUTH_TOKEN_PATH": str(home / ".ray" / "auth_token"),
        }  # fmt: skip

    def begin(self, *command: str) -> subprocess.Popen[str]:
        """Starts a command of mtcon-ray in the background."""
        return subprocess.Popen(
            [sys.executable, "-m", "mtcon_ray", *command], env=self.environment, cwd=self.folder,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *command: str) -> Ended:
        """Runs a command of mtcon-ray to its end."""
        return ended(self.begin(*command))


def ended(process: subprocess.Popen[str]) -> Ended:
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return Ended(process.returncode, output)


def test_a_sweep_is_submitted_followed_and_stopped(tmp_path: Path, home: dict[str, str]) -> None:
    """Results are the head's and private, and hold no secret of the client."""
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("a" * 64)
    sweep = tmp_path / "mtcon-ray" / "sweeps" / "small-1"
    with head_of(home) as start:
        user = User(tmp_path, home, address := start())

        # Ctrl-C ends the following alone.
        following = user.begin("submit", "spec.yaml", "--allow-plugins")
        last = sweep / "checkpoints" / "trial-0000" / "last.pt"
        wait_until(last.exists, "checkpoint", process=following, told=lambda: ended(following))
        following.send_signal(signal.SIGINT)
        code, printed = ended(following)
        assert code == 130
        assert printed.startswith("job small-1-1\n")
        assert "\nresults: MTCON_RAY_ROOT, else ~/mtcon-ray, as the head sees" in printed
        assert f"dashboard: {address}/#/jobs/small-1-1\n" in printed
        assert "small-1-1 continues; `mtcon-ray logs small-1-1 -f` follows it again" in printed

        # A second driver is refused.
        again = user.run("submit", "spec.yaml", "--name", "small-1", "--allow-plugins")
        assert again.code == 2
        assert "'small-1' is already running as job small-1-1; follow it with" in again.printed

        # The sweep is stopped with its checkpoints.
        both = [user.begin("logs", "small-1", "-f"), user.begin("stop", "small-1")]
        followed, stopped = map(ended, both)
        assert stopped.printed.startswith("stopping small-1-1, which saves its checkpoints first\n")
        told = "small-1-1 stopped; to continue: repeat `mtcon-ray submit` with --name small-1\n"
        assert stopped.printed.endswith(told)
        assert followed.code == 130
        kept = "stopped by SIGTERM; checkpoints are kept; to continue: repeat `mtcon-"
        assert kept in followed.printed
        (trial,) = load_sweep(sweep).trials
        assert trial.status == "INTERRUPTED"

        # It goes on as another job, which nobody follows.
        options = ("--name", "small-1", "--allow-plugins", "--no-follow")
        assert user.run("submit", "spec.yaml", *options).code == 0
        wait_until(lambda: load_sweep(sweep).trials[0].last_epoch > trial.last_epoch, "an epoch")
        code, printed = user.run("list", "--cluster", "--json")
        assert code == 0
        found = {job["id"]: job["status"] for job in json.loads(printed) if job["sweep"]}
        assert found == {"small-1-1": "STOPPED", "small-1-2": "RUNNING"}

        # A running sweep replaces files while they are read.
        assert user.run("stop", "small-1").code == 0
        assert not (tmp_path / "client" / "mtcon-ray").exists()
        assert os.stat(sweep).st_mode & 0o077 == 0
        files = [path for path in sweep.rglob("*") if path.is_file()]
        assert files
        assert not any("canary" in path.read_text(errors="replace") for path in files)
