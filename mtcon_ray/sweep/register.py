"""The register of a driver's running processes: an actor by which the driver stops and ends them.

Each process of a trial keeps one call to the register open, and looks for its answer between steps.
The process hears of a stop without a shared folder, and ends within a minute after its driver.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mtcon_ray.errors import PreemptedError

NAMESPACE = "mtcon-ray"
# An open call is answered after this time at the latest.
ANSWER_SECONDS = 15.0
# A process ends if the register has not answered for this long.
SILENT_SECONDS = 45.0
# Looking at every step would slow down training.
LOOK_SECONDS = 0.5


class RegisterActor:
    """The register. A restarted register is empty, and each process registers again."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._processes: dict[str, tuple[str, Any]] = {}  # with their trials, by identity

    async def wait(self, trial: str, identity: str, process: Any, seconds: float) -> bool:
        """Registers the process of a trial. Returns True once it must checkpoint and end.

        Returns False after this many seconds. A process may be reused for another trial.
        """
        self._processes[identity] = trial, process
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        return self._stop.is_set()

    async def stop(self) -> None:
        """Asks all processes to checkpoint and end."""
        self._stop.set()

    async def processes(self, trial: str | None) -> list[Any]:
        """Returns the processes of a trial, or all processes."""
        return [process for name, process in self._processes.values() if trial in (None, name)]


class Register:
    """The driver's side of the register. Its actor ends with the driver."""

    def __init__(self) -> None:
        self.name = f"register-{os.getpid()}-{time.time_ns()}"
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor: Any = ray.remote(num_cpus=0, max_restarts=-1)(RegisterActor)
        named = actor.options(name=self.name, namespace=NAMESPACE, scheduling_strategy=here)
        self._actor = named.remote()

    def stop(self) -> None:
        """Asks all processes to checkpoint and end. To be repeated: the actor may restart."""
        self._actor.stop.remote()

    def end(self, trial: str | None = None) -> None:
        """Kills the registered processes of a trial, or of all trials.

        A process that hangs cannot answer a request to end.
        """
        with suppress(RayActorError, GetTimeoutError):  # the actor restarts
            for process in ray.get(self._actor.processes.remote(trial), timeout=ANSWER_SECONDS):
                ray.kill(process)


class Line:
    """Callable in a process of a trial, True once the process must checkpoint and end.

    Registers the process at once. Raises PreemptedError if the driver is gone. `check` is called
    with each look.
    """

    def __init__(self, register: str, trial: str, check: Callable[[], None]) -> None:
        self._trial, self._check, self._stops = trial, check, False
        context = ray.get_runtime_context()
        self._me = trial, context.get_actor_id(), context.current_actor
        self._actor: Any = ray.get_actor(register, NAMESPACE)
        # Silence counts from the first answer: on a busy machine the actor starts after the trial.
        self._silent_since, self._next_look = math.inf, time.monotonic()
        self._open: Any = self._actor.wait.remote(*self._me, 0.0)

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._stops or now < self._next_look:
            return self._stops
        self._next_look = now + LOOK_SECONDS
        self._check()
        if ray.wait([self._open], timeout=0)[0]:  # it is answered
            try:
                self._stops, self._silent_since = bool(ray.get(self._open)), now
            except RayActorError as error:  # the actor restarts, or has ended with its driver
                if isinstance(error, ActorDiedError):
                    self._silent_since = -math.inf
            self._open = self._actor.wait.remote(*self._me, ANSWER_SECONDS)
        if now - self._silent_since > SILENT_SECONDS:
            why = "because the driver of its sweep is gone"
            raise PreemptedError(f"{self._trial} ends in this process, {why}")
        return self._stops
