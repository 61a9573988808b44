"""Processes of a round: found by their session or environment, watched, and killed."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

MARK = "MTCON_RAY_FAULT_ROUND"
# Only reached if a command hangs.
PATIENCE_SECONDS = 600.0
POLL_SECONDS = 0.05


class Command:
    """A command in a session of its own, with a file for its output."""

    def __init__(
        self,
        arguments: Sequence[str],
        output: Path,
        environment: Mapping[str, str],
        mark: str,
        *,
        stdout: IO[bytes] | int | None = None,
    ) -> None:
        self.mark = mark
        self.output = output
        self.began = time.monotonic()
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                arguments,
                cwd=output.parent,
                env={**os.environ, **environment, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=file if stdout is None else stdout,
                stderr=subprocess.STDOUT if stdout is None else file,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The command's process, which is also its session."""
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        """True after the end of the command itself, even if its children still run."""
        return self.process.poll() is not None

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Returns the exit code. Raises TimeoutError after `seconds`."""
        self.until(lambda: False, "the command's end", seconds)
        return self.process.wait()

    def until(
        self,
        ready: Callable[[], object],
        what: str,
        seconds: float = PATIENCE_SECONDS,
        pause: float = POLL_SECONDS,
    ) -> bool:
        """Waits until `ready()` and returns True, or False if the command ends earlier.

        Raises TimeoutError after `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if self.has_ended:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} within {seconds:.0f} s")
            time.sleep(pause)
        return True

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to the command itself."""
        if not self.has_ended:
            os.kill(self.pid, number)

    def kill_all(self) -> None:
        """Kills the command and its round's processes, including processes started meanwhile."""
        self.kill()
        while members := [pid for pid in processes_of(self.mark, self.pid) if kill(pid)]:
            time.sleep(0.02 * bool(members))
        self.process.wait()

    def printed(self) -> str:
        """Returns the output so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Sends a signal and returns True, or False if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def processes_of(mark: str, session: int | None = None) -> list[int]:
    """Returns the live processes with the mark in their environment, or in the session.

    Ray's processes overwrite their environment when they set their title, but keep the session.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state, _, _, its_session = _stat(entry)
            if state == "Z":
                continue
            marked = f"{MARK}={mark}\0".encode() in (entry / "environ").read_bytes() + b"\0"
        except OSError:
            continue  # the process has ended meanwhile, or belongs to another user
        if marked or its_session == session:
            found.append(int(entry.name))
    return found


def titled(pids: Sequence[int], title: str) -> list[int]:
    """Returns the processes with the title in their command line."""
    return [pid for pid in pids if title in command_line(pid)]


def children_of(parent: int) -> list[int]:
    """Returns the live children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # the process has ended meanwhile
            if entry.name.isdigit() and _stat(entry)[1] == parent:
                found.append(int(entry.name))
    return found


def running(pids: Sequence[int], program: str) -> list[int]:
    """Returns the processes that run a program with this file name."""
    found = []
    for pid in pids:
        with suppress(OSError):  # the process has ended meanwhile
            if Path(f"/proc/{pid}/exe").readlink().name == program:
                found.append(pid)
    return found


def command_line(pid: int) -> str:
    """Returns a process's command line, "" if it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def cpu_seconds(pid: int) -> float:
    """Returns the processor time of a process so far, 0 if it is gone."""
    try:
        rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(rest[11]) + int(rest[12])) / os.sysconf("SC_CLK_TCK")


def _stat(entry: Path) -> tuple[str, int, int, int]:
    """Returns state, parent, process group and session."""
    # The name in brackets may contain blanks and brackets.
    rest = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return rest[0], int(rest[1]), int(rest[2]), int(rest[3])


def last_line(command: Command) -> str:
    """Returns the last line of a command's output."""
    lines = command.printed().strip().splitlines()
    return lines[-1][:300] if lines else "no output"
