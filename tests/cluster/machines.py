"""Processes of pretended machines: one environment, one folder for logs, ended with the test."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


class Machines:
    """Machines with a folder of their own below /tmp, and the processes on them."""

    def __init__(self, stack: ExitStack, address: str) -> None:
        self._stack = stack
        self.folder = Path(tempfile.mkdtemp(prefix="mtcon-", dir="/tmp"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        own = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_"))}
        self.environment = {
            **own,
            "HOME": str(self.folder),
            "PATH": f"{Path(sys.executable).parent}:{own['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ADDRESS": address,
        }

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
