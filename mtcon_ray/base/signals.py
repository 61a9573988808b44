"""Graceful shutdown on SIGINT, SIGTERM and SIGHUP. A second signal has the effect from before."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from mtcon_ray.errors import MtconError


class Interrupted(MtconError):
    """A signal ended the work. A resume continues from the checkpoints."""

    exit_code = 130


def interrupt_on_signals() -> None:
    """Makes SIGTERM and SIGHUP end the program as Ctrl-C does. An ignored SIGHUP stays ignored."""
    for number in (signal.SIGTERM, *_hangups()):
        signal.signal(number, signal.default_int_handler)


@contextmanager
def on_signals(act: Callable[[str], None]) -> Iterator[None]:
    """Calls `act` with the name of the first signal, and restores the old handlers.

    Does nothing outside the main thread, where Python allows no signal handlers. If SIGHUP was
    ignored before, as under nohup, it stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def restore() -> None:
        for number, before in previous.items():
            signal.signal(number, before)

    def handle(number: int, frame: FrameType | None) -> None:
        restore()  # first: a second signal must end the process even if `act` blocks
        for hangup in _hangups():
            # A closed terminal sends it twice: by its shell and by the kernel.
            signal.signal(hangup, signal.SIG_IGN)
        act(signal.Signals(number).name)

    handled = (signal.SIGINT, signal.SIGTERM, *_hangups())
    previous = {s: signal.getsignal(s) for s in handled}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


@contextmanager
def own_signals() -> Iterator[None]:
    """Keeps SIGHUP from the processes of Ray that start in the context, and the handler of SIGTERM.

    SIGHUP is blocked in the processes started meanwhile, and delivered here afterwards. A closed
    terminal also signals the processes of a local Ray, and without them no trial can write a
    checkpoint. The handler of SIGTERM is restored, because Ray's handler ends all trials at once,
    with exit code 1.
    """
    before = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _hangups() -> tuple[signal.Signals, ...]:
    """Returns SIGHUP unless it is ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return () if ignored else (signal.SIGHUP,)
