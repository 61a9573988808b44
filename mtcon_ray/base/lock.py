"""Lock for a single driver per folder. The kernel releases it when the process ends."""

import fcntl
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcon_ray.base.root_files import below
from mtcon_ray.errors import SweepError

FILE = "lock"
# In a copy of a sweep's folder: a driver of another machine has the sweep, by its claim.
ELSEWHERE_FILE = "driven-elsewhere"
MAX_HOLDER = 200  # characters of the holding process's name


@contextmanager
def driver_lock(folder: Path) -> Iterator[None]:
    """Holds the folder's lock. Raises SweepError, with the holder's name, if it is taken."""
    # "a+", because "w" would erase the holder's name before it can be shown.
    with open(folder / FILE, "a+", encoding="utf-8", errors="replace", opener=below) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(MAX_HOLDER).strip()
            raise SweepError(
                f"{folder.name!r} is already running, driven by {holder}; wait until it ends, stop "
                "it, or use another --name"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def stop_driver(folder: Path) -> None:
    """Sends SIGTERM to the process that holds the folder's lock, as `kill` does.

    Raises SweepError if no process of this machine has the lock file open. The name in the file may
    be a stranger's text.
    """
    if (folder / ELSEWHERE_FILE).exists():
        raise SweepError(f"{folder.name!r} is running on another machine; stop it there")
    path = folder / FILE
    with open(path, encoding="utf-8", errors="replace", opener=below) as file:
        holder = file.read(MAX_HOLDER).strip()
    pid = next(iter(re.findall(r"^process (\d+) on ", holder)), "none")
    with suppress(OSError):  # another user's process, or a process that has just ended
        if any(fd.resolve() == path.resolve() for fd in Path("/proc", pid, "fd").iterdir()):
            return os.kill(int(pid), signal.SIGTERM)
    raise SweepError(f"{folder.name!r} is driven by {holder}, not by your process; stop it there")


def is_driven(folder: Path) -> bool:
    """Returns True if a process holds the folder's lock, or a driver elsewhere has the sweep."""
    try:
        with suppress(FileNotFoundError), open(folder / FILE, "rb", opener=below) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return (folder / ELSEWHERE_FILE).exists()
