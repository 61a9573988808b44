"""A bound on the memory that threads use together."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock


class Room:
    """A number of bytes that threads share; a thread that needs more than are free waits."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = self._free = num_bytes
        self._turn, self._freed = Lock(), Condition()

    @contextmanager
    def taken(self, num_bytes: int) -> Iterator[None]:
        """Waits for the bytes, and frees them at the end; more than all of them count as all."""
        num_bytes = min(num_bytes, self._num_bytes)
        # One thread waits at a time: small images would otherwise overtake a large one for ever.
        with self._turn, self._freed:
            self._freed.wait_for(lambda: self._free >= num_bytes)
            self._free -= num_bytes
        try:
            yield
        finally:
            with self._freed:
                self._free += num_bytes
                self._freed.notify()
