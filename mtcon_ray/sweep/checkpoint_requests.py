"""Requests that a running trial be checkpointed: its process, node or worker group will end."""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ray.exceptions import RayError

from mtcon_ray.cluster.ray_private import node_drains
from mtcon_ray.paths import LAST_FILE
from mtcon_ray.root_files import remove, touch

# Each look is a request to the head.
POLL_SECONDS = 5.0
# A training continues until its node is gone. At most this much of it is lost then.
SAVE_SECONDS = 20.0
# A file beside the trial's checkpoints: its workers will be replaced by more or fewer ones.
RESIZE = "resize"
RESIZE_POLL_SECONDS = 0.5  # of a file system that may be shared
# Seconds after which workers are replaced without a checkpoint: they may be in a long evaluation.
RESIZE_PATIENCE = 120.0

log = logging.getLogger(__name__)

# A process ends after a SIGTERM, so this is never cleared. Workers of Ray Train receive the signal
# in the main thread and train in another one.
_sigterm = threading.Event()


class DrainNotice:
    """Callable that returns True when the training of this process should be checkpointed.

    That is once Ray announces the end of the node, and then every SAVE_SECONDS.
    """

    def __init__(self) -> None:
        self._next_look = 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._next_look:
            return False
        drains = self._look()
        self._next_look = now + (SAVE_SECONDS if drains else POLL_SECONDS)
        return drains

    def _look(self) -> bool:
        try:
            return node_drains()
        except (RayError, RuntimeError) as error:
            # The head may be busy. If it is lost, Ray ends this process.
            log.warning("the state of this node is not known: %s", error)
            return False


def asked_to_end() -> bool:
    """Returns True once this process has received a SIGTERM that `heed_sigterm` expected."""
    return _sigterm.is_set()


def heed_sigterm() -> None:
    """Makes the next SIGTERM a notice; one after that has its former effect.

    Must be called in the main thread.
    """
    before = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        _sigterm.set()

    signal.signal(signal.SIGTERM, note)


@contextmanager
def heeding_sigterm() -> Iterator[None]:
    """Makes a SIGTERM in the context a notice. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    heed_sigterm()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class ResizeRequest:
    """Request to checkpoint a trial before its workers are replaced, by the process that does so.

    Calling it asks, and returns True once the trial has been checkpointed since, or if it cannot
    be: after RESIZE_PATIENCE, or on an error of the disk.
    """

    def __init__(self, checkpoints: Path) -> None:
        self._request = checkpoints / RESIZE
        self._last = checkpoints / LAST_FILE
        self._deadline: float | None = None

    def __call__(self) -> bool:
        try:
            if self._deadline is None:
                touch(self._request)
                self._deadline = time.monotonic() + RESIZE_PATIENCE
            elif time.monotonic() > self._deadline or self._is_served():
                remove(self._request)
                self._deadline = None
                return True
        except OSError as error:
            log.warning("no checkpoint before the workers change: %s", error)
            self._deadline = None
            return True
        return False

    def _is_served(self) -> bool:
        # Both times are of the same file system, whose clock need not be this node's.
        asked = self._request.stat().st_mtime_ns
        return self._last.exists() and self._last.stat().st_mtime_ns > asked


class ResizeNotice:
    """Callable that returns True once for each ResizeRequest."""

    def __init__(self, checkpoints: Path) -> None:
        self._request = checkpoints / RESIZE
        self._next_look = 0.0
        self._served = 0

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + RESIZE_POLL_SECONDS
        try:
            asked = self._request.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        is_new, self._served = asked != self._served, asked
        return is_new
