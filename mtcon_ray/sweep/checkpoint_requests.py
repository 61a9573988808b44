"""The request to checkpoint a trial and end: a SIGTERM to its process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# A process ends after a SIGTERM, so this is never cleared. Workers of Ray Train receive the signal
# in the main thread and train in another thread.
_sigterm = threading.Event()


def asked_to_end() -> bool:
    """Returns True after a SIGTERM to this process, handled by `heed_sigterm`."""
    return _sigterm.is_set()


def heed_sigterm() -> None:
    """Makes the next SIGTERM only set a flag. A second SIGTERM has its previous effect.

    Must be called in the main thread.
    """
    before = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        _sigterm.set()

    signal.signal(signal.SIGTERM, note)


@contextmanager
def heeding_sigterm() -> Iterator[None]:
    """Makes a SIGTERM in the context only set a flag. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    heed_sigterm()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
