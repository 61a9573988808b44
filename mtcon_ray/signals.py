"""SIGINT and SIGTERM as a request to end in good order; a second one ends at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from mtcon_ray.errors import MtconError


class Interrupted(MtconError):
    """A signal ended the work; all is checkpointed, and it can be resumed."""

    exit_code = 130


@contextmanager
def on_signals(act: Callable[[str], None]) -> Iterator[None]:
    """Call `act` with the name of the first SIGINT or SIGTERM; after it the old handlers rule."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def restore() -> None:
        for number, before in previous.items():
            signal.signal(number, before)

    def handle(number: int, frame: FrameType | None) -> None:
        restore()
        act(signal.Signals(number).name)

    previous = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
