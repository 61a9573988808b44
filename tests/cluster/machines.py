"""Processes of pretended machines: one environment, one folder for logs, ended with the test."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.conftest import environment_of

REPOSITORY = Path(__file__).parents[2]


class Machines:
    """Machines with a folder of their own below /tmp, and the processes on them."""

    def __init__(self, stack: ExitStack, address: str) -> None:
        self._stack = stack
        self.folder = Path(tempfile.mkdtemp(prefix="mtcon-", dir="/tmp"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = {
            **environment_of(self.folder), "PYTHONPATH": str(REPOSITORY), "RAY_ADDRESS": address,
            "RAY_AUTH_MODE": "token",
        }  # fmt: skip

    def begin(self, *command: str, log: str) -> subprocess.Popen[bytes]:
        """Starts a process, whose output is added to a file of the folder."""
        with (self.folder / log).open("a") as out:
            process = subprocess.Popen(
                command, env=self.environment, cwd=REPOSITORY, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self._stack.callback(self.end, process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends a process and those that it has started."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")
