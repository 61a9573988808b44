"""Sender of a folder's event logs to MLflow, in a thread of the driver.

Training only writes event logs and never waits for the server. The sender stores its position in
each log on disk and retries after every failure. It sends an event before it moves the position,
and sending an event twice has no effect. The log of a run deleted in MLflow is held back until the
run is restored.
"""

import json
import logging
import math
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mtcon_ray.base.paths import cursors_file, parent_log
from mtcon_ray.base.root_files import move, write
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import EventLog, identity, num_events, tail
from mtcon_ray.records.events import Ended, Event, Reported, Started
from mtcon_ray.records.lost import shown
from mtcon_ray.tracking.cursors import grown, num_left, saved
from mtcon_ray.tracking.login import masked
from mtcon_ray.tracking.mlflow_server import HeldError, first_line, import_quietly

if TYPE_CHECKING:
    from mtcon_ray.tracking.runs import Runs

POLL_SECONDS = 0.5
FIRST_DELAY, LONGEST_DELAY, DRAIN_DELAY = 0.5, 30.0, 1.0
METRICS_AT_ONCE = 800  # of the 1,000 entries of a batch, with room for parameters and tags
SYNC_ATTEMPTS = 5  # attempts without progress before `sync` gives up
ALL = ""  # name in `held` if nothing can be sent

log = logging.getLogger(__name__)


class Sender:
    """Follower of the event logs `<folder>/spool/*.jsonl` that sends new events to MLflow.

    parent.jsonl is the log of the parent run, the other files are the logs of its child runs.
    The constructor is cheap: the thread imports mlflow. No method raises an error of the server.
    `reason` has its text while `pending()` stays above 0. `held` maps the names of logs held back
    for the user to the reasons.
    """

    def __init__(self, folder: Path, uri: str, experiment: str) -> None:
        self.folder = folder
        self.uri = uri
        self.experiment = experiment
        self.last_error: str | None = None
        self.held: dict[str, str] = {}
        self.refused: list[str] = []  # records that the server will never accept
        self.cpu_seconds = 0.0  # of the thread, and of importing mlflow if this thread did it
        self._cursors = cursors_file(folder)
        # A digest of the server and experiment, since the URI may hold a password.
        self._place = sha256(f"{uri}\n{experiment}".encode()).hexdigest()[:32]
        place, offsets = saved(folder)
        self._offsets = offsets if place == self._place else {}  # sent bytes by event log name
        self._runs: Runs | None = None
        self._failed_once = False
        # True from a failure to the next connection: a request may or may not have arrived.
        self._in_doubt = False
        self._failed: set[str] = set()
        self._delay = 0.0
        self._next_held = 0.0  # time of the next attempt at held logs, monotonic seconds
        self._deadline = math.inf  # of a drain
        self._told: set[str] = set()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._draining = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="mtcon-tracking")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def drain(self, timeout: float) -> bool:
        """Waits at most `timeout` seconds for all events to be sent, and returns True if they are.

        Held logs are tried once more and not waited for.
        """
        self.hurry(timeout)
        self._draining = True
        self.held.clear()
        self._wake.set()
        while self._waits() and self._thread.is_alive() and time.monotonic() < self._deadline:
            time.sleep(0.05)
        self._draining, self._deadline = False, math.inf
        return not self.pending()

    def hurry(self, timeout: float) -> None:
        """Makes a drain end after at most `timeout` seconds, for signal handlers."""
        self._deadline = min(self._deadline, time.monotonic() + timeout)

    def close(self, timeout: float) -> int:
        """Drains for at most `timeout` seconds, ends the thread and returns the events left."""
        begin = time.monotonic()
        try:
            self.drain(timeout)
        finally:  # also after a second signal: another sender of the folder may follow
            self._stopping.set()
            self._wake.set()
        if self._thread.is_alive():
            rest = 0.0 if self._waits() else timeout - (time.monotonic() - begin)
            self._thread.join(max(0.1, rest))
        return self.pending()

    def sync(self) -> tuple[int, int]:
        """Sends all events left in the calling thread, and returns (events sent, events left).

        Must only run when no driver of the folder runs: a run without an end event becomes KILLED.
        """
        self._draining = True
        pending = left = self.pending()
        in_vain = 0
        while self._waits() and in_vain < SYNC_ATTEMPTS:
            self.attempt()
            before, left = left, self.pending()
            if self._waits() and left >= before:
                in_vain += 1
                time.sleep(min(2.0, 0.25 * 2**in_vain))
        if not left:
            self.mark_killed()
        return pending - left, left

    def mark_killed(self) -> None:
        """Sets the runs without an end event to KILLED. The thread must have ended."""
        if self._runs is not None and not self._thread.is_alive():
            self._runs.mark_killed()

    def pending(self) -> int:
        """Returns the number of unsent events."""
        return num_left(self.folder, self._offsets)

    @property
    def reason(self) -> str:
        """The reason for unsent events, as a single line."""
        return shown(list(self.held.values()), 2) or self.last_error or "no answer in time"

    def run_ids(self) -> dict[str, str]:
        """Returns MLflow's run ids by name ("parent", "trial-0003") for existing runs."""
        runs = self._runs
        return {} if runs is None else dict(runs.ids)

    def attempt(self) -> None:
        """Sends all new events in the calling thread, and stores an error in `last_error`."""
        try:
            self._send_all()
        except HeldError as error:
            self._hold(ALL, error)
        except Exception as error:  # an error of the server must not stop the training
            self._in_doubt = self._failed_once = True
            self._delay = min(max(FIRST_DELAY, 2 * self._delay), self._longest_delay)
            message = first_line(error)
            if message != self.last_error:
                log.warning("tracking at %s: %s; events are kept", masked(self.uri), message)
            self.last_error = message

    def _work(self) -> None:
        begin = time.thread_time()
        while not self._stopping.is_set():
            self.attempt()
            self.cpu_seconds = time.thread_time() - begin
            self._wake.wait(self._delay or POLL_SECONDS)
            self._wake.clear()
        if self._failed_once:
            # A request without an answer may have created a run late. A new connection deletes it.
            self._in_doubt = True
            self.attempt()

    def _hold(self, name: str, error: HeldError) -> None:
        self.held[name] = text = str(error)
        self._next_held = time.monotonic() + self._longest_delay
        if text not in self._told:
            self._told.add(text)
            log.warning("%s; events are kept", text)

    def _waits(self) -> bool:
        """Returns True if any unsent events do not wait for the user."""
        if ALL in self.held:
            return False
        # A last line cut by a kill does not count, because it is never sent.
        names = {path.stem for path in self._grown() if num_events(path, self._sent(path))}
        return bool(names - self.held.keys())

    def _send_all(self) -> None:
        if self.held and time.monotonic() >= self._next_held:
            self.held.clear()
        if ALL in self.held:
            return
        if self._runs is None or self._in_doubt:
            self._runs, self._in_doubt = self._connected(), False
        if self._runs is None:
            return
        runs = self._runs
        for path in sorted(self._grown(), key=lambda p: (p.stem in self._failed, p.stem)):
            # A child run's tag mlflow.parentRunId needs the id of the parent.
            is_possible = path.stem == "parent" or "parent" in runs.ids
            if is_possible and path.stem not in self.held:
                self._send_log(runs, path)
        self.last_error = None
        self._delay = 0.0

    def _connected(self) -> "Runs | None":
        """Returns the folder's runs, identified by the parent's first event, None before it."""
        import_quietly()
        from mtcon_ray.tracking.runs import Runs

        parent = parent_log(self.folder)
        if not EventLog.read(parent):
            return None
        begun = check_begun(self.folder)
        runs = Runs(self.uri, self.experiment, self.folder, identity(parent), begun)
        # The server no longer has the other runs, so their events are sent again from the start.
        self._offsets = {name: end for name, end in self._offsets.items() if name in runs.ids}
        return runs

    def _grown(self) -> list[Path]:
        return grown(self.folder, self._offsets)

    def _sent(self, path: Path) -> int:
        return self._offsets.get(path.stem, 0)

    def _send_log(self, runs: "Runs", path: Path) -> None:
        # If this log raises, it is sent last in the next attempt, because it must not block others.
        self._failed.add(path.stem)
        try:
            for events, end in _groups(tail(path, self._sent(path))):
                for text in runs.send(path.stem, events):
                    self.refused.append(f"{path.stem}: {text}")
                    log.warning("not tracked: %s", self.refused[-1])
                self._offsets[path.stem] = end
                self._save()
        except HeldError as error:
            self._hold(path.stem, error)
        self._failed.discard(path.stem)

    @property
    def _longest_delay(self) -> float:
        return DRAIN_DELAY if self._draining else LONGEST_DELAY

    def _save(self) -> None:
        """Replaces the file atomically. After a lost write, events are only sent twice."""
        state = {"place": self._place, "offsets": self._offsets}
        new = self._cursors.with_suffix(".new")
        write(new, json.dumps(state))
        move(new, self._cursors)


def check_begun(folder: Path) -> Started:
    """Returns the first event of a sweep or training, by which its runs are found.

    Raises SweepError if it is lost.
    """
    parent = parent_log(folder)
    begun = next(iter(EventLog.read(parent)), None)
    if not isinstance(begun, Started):
        got = begun.kind if begun else "no event"
        raise SweepError(
            f"{parent} is damaged: it begins with {got} instead of started; restore it, or delete "
            "it, and a resume begins it again with other runs in MLflow"
        )
    return begun


def _groups(events: list[tuple[Event, int]]) -> Iterator[tuple[list[Event], int]]:
    """Yields groups of consecutive events for a single batch, with the offset after each group.

    A group is a start, as many reports as fit, and an end. Every other event is its own group.
    """
    group: list[Event] = []
    size = group_end = 0
    for event, end in events:
        added = len(event.metrics) if isinstance(event, Reported) else 0
        fits = isinstance(event, Reported | Ended) and size + added <= METRICS_AT_ONCE
        if group and not (fits and isinstance(group[-1], Started | Reported)):
            yield group, group_end
            group, size = [], 0
        group.append(event)
        size, group_end = size + added, end
    if group:
        yield group, group_end
