"""A common bound on the memory of several threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock


class Room:
    """A number of bytes shared by threads. A thread waits until enough bytes are free."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = self._free = num_bytes
        self._turn, self._freed = Lock(), Condition()

    @contextmanager
    def taken(self, num_bytes: int) -> Iterator[None]:
        """Waits for the bytes, and frees them at the end. A larger number counts as all bytes."""
        num_bytes = min(num_bytes, self._num_bytes)
        # A single thread waits at a time: otherwise small images could always overtake a large one.
        with self._turn, self._freed:
            self._freed.wait_for(lambda: self._free >= num_bytes)
            self._free -= num_bytes
        try:
            yield
        finally:
            with self._freed:
                self._free += num_bytes
                self._freed.notify()
