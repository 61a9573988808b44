"""End of the processes that a killed driver has left of its local Ray.

Most of Ray's processes end with the driver. Its agents stay for one to two minutes. The process of
a trial stays as long as it stands still, and would then write into records of the next driver.

<Ray's folder of a session>/mtcon-ray.lock   locked by the driver that has started the session
"""

import fcntl
import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mtcon_ray.cluster.ray_folders import sessions_folder
from mtcon_ray.cluster.ray_private import new_session_folder

MARK = "mtcon-ray.lock"
# A killed process is gone at once, unless it waits for a disk that does not answer.
END_SECONDS = 10.0
PROCESSES = Path("/proc")
START_LOGS = ("raylet.err", "raylet.out", "gcs_server.err", "gcs_server.out")
# Of a failed check of Ray's: the condition, and its explanation.
REASON = re.compile(r"Check failed: \S+ (.+)")


@dataclass(frozen=True)
class Leftover:
    """A process of a session whose driver is dead, with its resident memory in bytes."""

    pid: int
    name: str
    memory: int

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"


@contextmanager
def owned_session() -> Iterator[None]:
    """Marks a local Ray that is started in the context as this process's, until the context ends.

    The kernel releases the lock on the mark when the process ends, however it ends.
    """
    with ExitStack() as held, new_session_folder(lambda folder: held.enter_context(_mark(folder))):
        yield


@contextmanager
def _mark(session: Path) -> Iterator[None]:
    path = session / MARK
    # Locked before it has its name: a start beside this one would take it for a dead driver's.
    beside = path.with_suffix(f".{os.getpid()}")
    with beside.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        beside.rename(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def end_leftovers() -> str | None:
    """Ends what killed drivers of this user have left on this machine; returns a line about it.

    Sessions of living drivers, of other users and of other programs are not touched. Returns None
    if nothing was left. Without /proc nothing is found.
    """
    dead = [session for session in _marked_sessions() if not _is_driven(session)]
    if not dead:
        return None
    found, stay = _ended(dead)
    for session in dead if not stay else ():
        (session / MARK).unlink(missing_ok=True)
    if not found:
        return None
    line = f"a killed driver has left {', '.join(map(str, found))} of its Ray"
    line += f", {sum(each.memory for each in found) / 1e6:.0f} MB: "
    if not stay:
        return f"{line}ended"
    return f"{line}killed, but {', '.join(map(str, stay))} cannot end before its disk answers"


def end_failed_start() -> str:
    """Ends the processes of a Ray that this process could not start; returns the reason and log."""
    sessions = sorted(sessions_folder().glob(f"session_*_{os.getpid()}"))[-1:]
    _ended(sessions)
    for log in (session / "logs" / name for session in sessions for name in START_LOGS):
        text = log.read_text(errors="replace") if log.exists() else ""
        if found := REASON.search(text):
            return f"{found[1]} (log: {log})"
    return f"its logs, {sessions[0] / 'logs'}, name no reason" if sessions else "it has no log"


def _ended(sessions: list[Path]) -> tuple[list[Leftover], list[Leftover]]:
    """Kills the processes of sessions; returns all of them, and the ones that do not end."""
    found = leftovers(sessions)
    for each in found:
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
    return found, _wait(found)


def leftovers(sessions: list[Path]) -> list[Leftover]:
    """Returns this user's processes that have a file in one of the sessions open for writing.

    All processes of Ray write logs there. One that only reads them, as `tail -f`, is not Ray's.
    """
    starts = tuple(f"{session.resolve()}/" for session in sessions)
    found = []
    for entry in sorted(PROCESSES.glob("[0-9]*"), key=lambda entry: int(entry.name)):
        with suppress(OSError):  # it has ended meanwhile, or may not be read
            is_other = int(entry.name) == os.getpid() or entry.stat().st_uid != os.getuid()
            if not is_other and _writes_below(entry, starts):
                memory = int((entry / "statm").read_text().split()[1])
                memory *= os.sysconf("SC_PAGE_SIZE")
                found.append(Leftover(int(entry.name), _name(entry), memory))
    return found


def _marked_sessions() -> Iterator[Path]:
    """Yields the folders of Ray's sessions that drivers of this user have marked."""
    for path in sessions_folder().glob(f"session_*/{MARK}"):
        with suppress(OSError):  # its driver ends just now
            # The folder of all sessions may be writable by everybody. `session_latest` is a link.
            about = (path.lstat(), path.parent.lstat())
            is_folder = stat.S_ISDIR(about[1].st_mode)
            if is_folder and all(each.st_uid == os.getuid() for each in about):
                yield path.parent


def _is_driven(session: Path) -> bool:
    try:
        with (session / MARK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # locked, or removed by a driver that ends just now
        return True
    return False


def _writes_below(entry: Path, starts: tuple[str, ...]) -> bool:
    """Returns True if a process has a file open for writing whose path begins with one of these."""
    for file in (entry / "fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            if os.readlink(file).startswith(starts) and file.lstat().st_mode & stat.S_IWUSR:
                return True
    return False


def _name(entry: Path) -> str:
    """Returns a short name of a process: Ray's title, the script of a Python, or the program.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cmdline").write_bytes(b"python\\0-u\\0/ray/log_monitor.py\\0--x\\0")
    ...     _name(Path(folder))
    'log_monitor'
    """
    words = (entry / "cmdline").read_bytes().decode(errors="replace").strip("\0").split("\0")
    if words[0].startswith("ray::"):
        return words[0].removeprefix("ray::").strip()
    scripts = (word for word in words[1:] if word.endswith(".py"))
    return Path(next(scripts, words[0])).stem


def _wait(found: list[Leftover]) -> list[Leftover]:
    """Waits until the processes are gone; returns those that are not after END_SECONDS."""
    deadline = time.monotonic() + END_SECONDS
    while (stay := [each for each in found if _is_there(each.pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return stay


def _is_there(pid: int) -> bool:
    """Returns True if a process runs; one that has ended and waits for its parent does not."""
    try:
        status = (PROCESSES / str(pid) / "stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"
