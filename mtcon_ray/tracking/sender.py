"""Sender of a sweep's event log to MLflow, in a thread of the driver.

Training never waits for the server. The sender stores its position in the log on disk and retries
after every failure. It sends an event before it moves the position, and sending an event twice has
no effect. The events of a run deleted in MLflow are held back until the run is restored.
"""

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mtcon_ray.base.paths import SENT_FILE, event_file
from mtcon_ray.base.root_files import read_small, remove, replace
from mtcon_ray.errors import UserError
from mtcon_ray.records.event_log import ends_line, first_event, num_events, tail
from mtcon_ray.records.events import Earlier, Ended, Event, Lost, Reported, Started
from mtcon_ray.records.lost import shown
from mtcon_ray.tracking.login import masked
from mtcon_ray.tracking.mlflow_server import PARENT, first_line, import_quietly

if TYPE_CHECKING:
    from mtcon_ray.tracking.runs import Runs

POLL_SECONDS = 0.5
FIRST_DELAY, LONGEST_DELAY, DRAIN_DELAY = 0.5, 30.0, 1.0
METRICS_AT_ONCE = 800  # of the 1,000 entries of a batch, with room for parameters and tags
# Time at the end to send the remaining events to the tracking server.
DRAIN_SECONDS = 120.0
# The same after a signal or a full disk: less time than a job or a pod is given to end.
STOPPED_DRAIN_SECONDS = 10.0
ALL = ""  # name in `held` if nothing can be sent
# Errors of reading a file with arbitrary content.
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)

log = logging.getLogger(__name__)

Unsent = deque[tuple[Event, int]]  # events, each with the offset of its line


class Sender:
    """Follower of a sweep's event log that sends new events to MLflow.

    Each trial has a run, which is a child of the sweep's own run ("parent"). The constructor is
    cheap: the thread imports mlflow. No method raises an error of the server. `reason` has its text
    while `pending()` stays above 0. `held` maps the names of runs held back for the user to the
    reasons. Only the first `limit` bytes of the log are sent, and nothing if it is negative: the
    rest is not in the store of the sweep yet.
    """

    def __init__(self, folder: Path, uri: str, experiment: str) -> None:
        self.limit: Callable[[], float] = lambda: math.inf
        self.folder, self.uri, self.experiment = folder, uri, experiment
        self.last_error: str | None = None
        self.held: dict[str, str] = {}
        self.refused: list[str] = []  # records that the server will never accept
        self._log = event_file(folder)
        # A digest of the server and experiment, since the URI may hold a password.
        self._place = sha256(f"{uri}\n{experiment}".encode()).hexdigest()[:32]
        place, offset = _saved(folder)
        self._read_to = self._saved_to = offset if place == self._place else 0
        if not self._read_to:  # else a log that was cut could grow to a saved offset again
            forget_sent(folder)
        self._unsent: dict[str, Unsent] = {}  # by run
        self._runs: Runs | None = None
        # True from a failure to the next connection: a request may or may not have arrived.
        self._in_doubt = self._failed_once = False
        self._failed: set[str] = set()
        self._delay = 0.0
        self._next_held = 0.0  # time of the next attempt at held runs, monotonic seconds
        self._deadline = math.inf  # of `close`
        self._told: set[str] = set()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._longest_delay = LONGEST_DELAY
        self._thread = threading.Thread(target=self._work, daemon=True, name="mtcon-tracking")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def hurry(self) -> None:
        """Shortens a running `close` as after a stop, for signal handlers."""
        if self._deadline < math.inf:
            self._deadline = min(self._deadline, time.monotonic() + STOPPED_DRAIN_SECONDS)

    def close(self, timeout: float) -> int:
        """Sends for at most `timeout` seconds, ends the thread and returns the events left.

        Held runs are tried once more and not waited for. Runs without an end event become KILLED,
        because a full disk takes no end event.
        """
        self._deadline = time.monotonic() + timeout
        self._longest_delay = DRAIN_DELAY
        self.held.clear()
        self._wake.set()
        try:
            while self._waits() and self._thread.is_alive() and time.monotonic() < self._deadline:
                time.sleep(0.05)
        finally:  # also after a second signal: another sender of the folder may follow
            self._stopping.set()
            self._wake.set()
        if self._thread.is_alive():
            self._thread.join(max(0.1, self._deadline - time.monotonic()))
        if self._runs and not self._thread.is_alive() and self.limit() >= 0:
            self._runs.mark_killed()
        return self.pending()

    def pending(self) -> int:
        """Returns the number of unsent events."""
        # A last line cut by a kill does not count, because it is never sent.
        return sum(map(len, list(self._unsent.values()))) + num_events(self._log, self._read_to)

    @property
    def reason(self) -> str:
        """The reason for unsent events, as a single line."""
        return shown(list(self.held.values()), 2) or self.last_error or "no answer in time"

    def attempt(self) -> None:
        """Sends all new events in the calling thread, and stores an error in `last_error`."""
        try:
            self._send_all()
        except UserError as error:
            self._hold(ALL, error)
        except Exception as error:  # an error of the server must not stop the training
            self._in_doubt = self._failed_once = True
            self._delay = min(max(FIRST_DELAY, 2 * self._delay), self._longest_delay)
            if (message := first_line(error)) != self.last_error:
                log.warning("tracking at %s: %s; events are kept", masked(self.uri), message)
            self.last_error = message

    def _work(self) -> None:
        while not self._stopping.is_set():
            self.attempt()
            self._wake.wait(self._delay or POLL_SECONDS)
            self._wake.clear()
        if self._failed_once:
            # A request without an answer may have created a run late. A new connection deletes it.
            self._in_doubt = True
            self.attempt()

    def _hold(self, name: str, error: UserError) -> None:
        self.held[name] = text = str(error)
        self._next_held = time.monotonic() + self._longest_delay
        if text not in self._told:
            self._told.add(text)
            log.warning("%s; events are kept", text)

    def _waits(self) -> bool:
        """Returns True if any unsent events do not wait for the user."""
        if ALL in self.held:
            return False
        waiting = any(left and name not in self.held for name, left in [*self._unsent.items()])
        return waiting or num_events(self._log, self._read_to) > 0

    def _send_all(self) -> None:
        if self.held and time.monotonic() >= self._next_held:
            self.held.clear()
        if ALL in self.held or (begun := first_event(self._log)) is None:
            return
        if self._runs is None or self._in_doubt:
            import_quietly()
            from mtcon_ray.tracking.runs import Runs

            self._runs = Runs(self.uri, self.experiment, self.folder, begun)
            self._in_doubt = False
        runs = self._runs
        self._read()
        if self._lacks(runs):
            self._unsent, self._read_to, self._saved_to = {}, 0, 0
            self._read()
        for name in sorted(self._unsent, key=lambda n: (n in self._failed, n != PARENT, n)):
            # A child run's tag mlflow.parentRunId needs the id of the parent.
            if (name == PARENT or PARENT in runs.ids) and name not in self.held:
                self._send_run(runs, name, self._unsent[name])
        self._unsent = {name: left for name, left in self._unsent.items() if left}
        self._save()
        self.last_error = None
        self._delay = 0.0

    def _read(self) -> None:
        begin, limit = self._read_to, self.limit()
        for event, end in tail(self._log, begin):
            if end > limit:
                break
            if not isinstance(event, Lost | Earlier):  # not for MLflow
                self._unsent.setdefault(event.trial or PARENT, deque()).append((event, begin))
            begin = end
        self._read_to = begin

    def _lacks(self, runs: "Runs") -> bool:
        """Returns True if the server no longer has some runs, so that all is sent again."""
        firsts = (left[0][0] for name, left in self._unsent.items() if name not in runs.ids)
        is_whole = PARENT in runs.ids and all(isinstance(each, Started) for each in firsts)
        return bool(self._unsent and self._saved_to and not is_whole)

    def _send_run(self, runs: "Runs", name: str, unsent: Unsent) -> None:
        # If this run raises, it is sent last in the next attempt, because it must not block others.
        self._failed.add(name)
        try:
            while events := _first_group(unsent):
                for text in runs.send(name, events):
                    self.refused.append(f"{name}: {text}")
                    log.warning("not tracked: %s", self.refused[-1])
                for _ in events:
                    unsent.popleft()
        except UserError as error:
            self._hold(name, error)
        self._failed.discard(name)

    def _save(self) -> None:
        """Saves the offset before which all events are sent.

        Replaces the file atomically. After a lost write, events are only sent twice.
        """
        firsts = [left[0][1] for left in self._unsent.values() if left]
        if (offset := min(firsts, default=self._read_to)) == self._saved_to:
            return
        replace(self.folder / SENT_FILE, json.dumps({"place": self._place, "offset": offset}))
        self._saved_to = offset


def _saved(folder: Path) -> tuple[str, int]:
    """Returns a sender's saved state: its server's digest, and the offset of the sent part.

    A missing or damaged file means: nothing was sent. Sending events again is harmless, but
    skipping unsent events would lose them. So the log is also sent again if it was cut before the
    offset.
    """
    try:
        state = json.loads(read_small(folder / SENT_FILE))
        place, offset = str(state["place"]), int(state["offset"])
        return (place, offset) if ends_line(event_file(folder), offset) else ("", 0)
    except DAMAGED:
        return "", 0


def num_unsent(folder: Path) -> int:
    """Returns the number of events after the sent part of a sweep's log."""
    return num_events(event_file(folder), _saved(folder)[1])


def forget_sent(folder: Path) -> None:
    """Makes the next sender of a folder send all its events again, without duplicates."""
    remove(folder / SENT_FILE)


def _first_group(unsent: Unsent) -> list[Event]:
    """Returns the first events of a run for a single batch.

    A group is a start, as many reports as fit, and an end. Every other event is its own group.
    """
    group: list[Event] = []
    free = METRICS_AT_ONCE
    for event, _ in unsent:
        free -= len(event.metrics) if isinstance(event, Reported) else 0
        fits = isinstance(event, Reported | Ended) and free >= 0
        if group and not (fits and isinstance(group[-1], Started | Reported)):
            break
        group.append(event)
    return group
