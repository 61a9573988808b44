"""Watch over a local Ray: without its raylet or its GCS a sweep would wait without a message."""

import ctypes
import threading
from collections.abc import Callable, Mapping
from subprocess import Popen
from types import TracebackType

import ray

from mtcon_ray.cluster.ray_private import local_processes

LOOK_SECONDS = 1.0
# Ray itself ends the driver 60 s after its GCS. The message must be printed before.
GIVE_UP_SECONDS = 40.0


class RayLost(BaseException):
    """The raylet or the GCS has ended. Not an Exception: Tune would first wait for its trials."""


def lost_process(processes: Mapping[str, Popen[bytes]]) -> str | None:
    """Returns the name and the end of a local Ray's first ended process, None if all run."""
    for name, process in list(processes.items()):  # it may grow meanwhile
        if (code := process.poll()) is not None:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            return f"the {name} of Ray on this machine {how}"
    return None


class RayWatch:
    """Context manager that leaves its body once the raylet or the GCS of a local Ray has ended.

    Calls `on_loss` with the reason in a thread of its own, and then ends the body. If a call of Ray
    never returns, the body cannot end. Then it calls `on_hang`, which has to end the process. Does
    nothing for a Ray started by another process. `starting` has the processes, by name, of a Ray
    started in the body.

    The body needs another context manager within this one, such as `nullcontext()`: if a call of
    Ray fails meanwhile, RayLost is raised when the next `__exit__` begins.
    """

    def __init__(
        self,
        on_loss: Callable[[str], None],
        on_hang: Callable[[], None],
        starting: Mapping[str, Popen[bytes]] | None = None,
    ) -> None:
        self._on_loss = on_loss
        self._on_hang = on_hang
        self._processes = starting
        self._left = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._watched = threading.get_ident()
        if self._processes is None:
            self._processes = local_processes()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="mtcon-ray-watch")
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        lost = kind is RayLost
        if lost:
            # Ends the trials: otherwise they would train without a driver.
            ray.shutdown()
        try:
            with self._lock:
                self._left.set()
        except RayLost:  # it was raised after the body's last line
            self._left.set()
            lost = lost or kind is None
        return lost

    def _watch(self) -> None:
        while not self._left.wait(LOOK_SECONDS):
            if died := lost_process(self._processes or {}):
                self._end(f"{died}, and no trial can continue")
                return

    def _end(self, reason: str) -> None:
        self._on_loss(reason)
        with self._lock:
            if self._left.is_set():
                return
            identity = ctypes.c_ulong(self._watched)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(RayLost))
        if not self._left.wait(GIVE_UP_SECONDS):
            self._on_hang()
