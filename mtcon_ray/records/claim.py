"""The claim of a driver on a sweep in an object store, which has no lock.

claims/<driver>-<id>         renewed every 10 s, <driver> is the driver's number in six digits
claims/<driver>-<id>.ended   the same after the driver's end

Of two drivers with one number the one with the greater id stays. All times are the store's, because
the clocks of machines differ.
"""

import os
import re
import socket
import time
from typing import Any
from uuid import uuid4

from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import SweepError

FOLDER, ENDED = "claims", ".ended"
NAME = re.compile(FOLDER + r"/(\d{6})-[0-9a-f]{32}(\.ended)?")
FRESH_SECONDS = 60.0
TAKE_OVER = "--take-over"


class Claim:
    """A driver's claim. The constructor takes it.

    Raises SweepError if another driver holds a claim younger than FRESH_SECONDS, unless `take_over`
    is set, and StorageError.
    """

    def __init__(self, objects: Objects, name: str, *, take_over: bool) -> None:
        self._objects = objects
        self._content = f"process {os.getpid()} on {socket.gethostname()}".encode()
        self.number = 1 + max(map(_number, _claims(objects)), default=0)
        self._own = f"{FOLDER}/{self.number:06d}-{uuid4().hex}"
        objects.write(self._own, self._content)
        there = _claims(objects)
        now = there.pop(self._own).mtime_ns
        # Of two drivers with the same number, which began at the same moment, the greater id stays.
        rivals = {n: c for n, c in there.items() if _number(n) != self.number or n > self._own}
        held = _held(rivals, now)
        if held and not take_over:
            objects.delete([self._own])
            holder = (objects.read(held[-1]) or b"another").decode(errors="replace")
            raise SweepError(
                f"{name!r} is already running, driven by {holder[:200]}; wait "
                "until it ends or stop it, or use another --name. If that machine is lost, "
                f"start a minute later, or with {TAKE_OVER}"
            )
        objects.delete(each for each in there if each < self._own)

    def is_lost(self) -> bool:
        """Returns True if another driver has taken over. Raises StorageError."""
        return any(name > self._own for name in _claims(self._objects))

    def renew(self) -> None:
        """Renews a claim that is not lost. Raises StorageError."""
        self._objects.write(self._own, self._content)

    def end(self) -> None:
        """Gives up the claim. The next driver gets a higher number. Raises StorageError."""
        self._objects.write(self._own + ENDED, self._content)
        self._objects.delete([self._own])


def is_held(objects: Objects) -> bool:
    """Returns True if a driver has a fresh claim, by this machine's clock. Raises StorageError."""
    return bool(_held(_claims(objects), now=time.time_ns()))


def is_taken(objects: Objects, driver: int) -> bool:
    """Returns True if there is a claim of a later driver. Raises StorageError."""
    return any(_number(name) > driver for name in _claims(objects))


def _claims(objects: Objects) -> dict[str, Any]:
    return {n: info for n, info in sorted(objects.list(FOLDER).items()) if NAME.fullmatch(n)}


def _held(claims: dict[str, Any], now: int) -> list[str]:
    """Returns the fresh claims of drivers that have not ended, at a time in nanoseconds."""
    oldest = now - FRESH_SECONDS * 1e9
    return [n for n, info in claims.items() if info.mtime_ns > oldest and not n.endswith(ENDED)]


def _number(name: str) -> int:
    return int(name.removeprefix(f"{FOLDER}/")[:6])
