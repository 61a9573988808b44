"""Graceful shutdown on SIGINT and SIGTERM; a second signal has its default effect."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from mtcon_ray.errors import MtconError


class Interrupted(MtconError):
    """A signal ended the work. Everything is checkpointed and can be resumed."""

    exit_code = 130


@contextmanager
def on_signals(act: Callable[[str], None]) -> Iterator[None]:
    """Calls `act` with the name of the first SIGINT or SIGTERM, and restores the old handlers.

    Does nothing outside the main thread, where Python allows no signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def restore() -> None:
        for number, before in previous.items():
            signal.signal(number, before)

    def handle(number: int, frame: FrameType | None) -> None:
        restore()  # first, so that a second signal ends the process even if `act` blocks
        act(signal.Signals(number).name)

    previous = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
