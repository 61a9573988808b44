"""Sends the spools of one folder to MLflow from a thread of the driver.

Training writes spools and never waits for this: whatever the server does, the sender keeps
its place on disk and tries again. An event is sent before its cursor moves, and sending it
twice changes nothing.
"""

import logging
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mtcon_ray.tracking.cursors import Cursors
from mtcon_ray.tracking.server import (
    LostError,
    RefusedError,
    first_line,
    import_quietly,
    is_server,
    masked,
)
from mtcon_ray.tracking.spool import Event, num_events, tail

if TYPE_CHECKING:
    from mtcon_ray.tracking.runs import Runs

POLL_SECONDS = 0.5
FIRST_DELAY, LONGEST_DELAY, DRAIN_DELAY = 0.5, 30.0, 1.0
KILL_SECONDS = 1.8
METRICS_AT_ONCE = 800  # of the 1,000 entries of a batch; the others are for parameters and tags
SAVE_SECONDS = 1.0  # what a kill may have sent twice, which changes nothing
SYNC_ATTEMPTS = 5  # without progress

log = logging.getLogger(__name__)


class Sender:
    """Tails `<folder>/spool/*.jsonl`; parent.jsonl is the parent run, the others its children.

    Constructing is cheap; mlflow is imported by the thread. No method raises because of the
    server: `last_error` tells what is wrong while `pending()` stays above 0.
    """

    def __init__(self, folder: Path, uri: str, experiment: str) -> None:
        self.folder = folder
        self.uri = uri
        self.experiment = experiment
        self.last_error: str | None = None
        self.refused: list[str] = []  # events that the server will never take
        self.cpu_seconds = 0.0  # of the thread; with the import if mlflow was not imported yet
        self._spools = folder / "spool"
        self._cursors = Cursors(self._spools / "cursors.json", uri, experiment)
        self._runs: Runs | None = None
        self._in_doubt = False  # after a failure nobody knows what has arrived
        self._failed: set[str] = set()
        self._delay = 0.0
        self._saved = time.monotonic()
        self._moved = False  # whether a cursor has moved since they were saved
        self._next_late = 0.0  # when artifacts put off are tried again, monotonic seconds
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._draining = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="mtcon-tracking")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def drain(self, timeout: float) -> bool:
        """Wait until everything spooled is sent, at most `timeout` seconds; whether it is."""
        self._draining = True
        self._next_late = 0.0
        self._wake.set()
        deadline = time.monotonic() + timeout
        while self.pending() and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._draining = False
        return not self.pending()

    def close(self, timeout: float) -> int:
        """Drain for at most `timeout` seconds and end the thread; how many events are left."""
        deadline = time.monotonic() + timeout
        self.drain(timeout)
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(max(0.1, deadline - time.monotonic()))
        return self.pending()

    def mark_killed(self) -> int:
        """Set every open run to KILLED in under 2 s; how many were. For signal handlers."""
        return 0 if self._runs is None else self._runs.mark_killed(KILL_SECONDS)

    def pending(self) -> int:
        """Events not sent yet."""
        offsets = self._cursors.offsets
        unsent = sum(num_events(p, offsets.get(p.stem, 0)) for p in self._grown())
        return unsent + len(self._cursors.late)

    def run_ids(self) -> dict[str, str]:
        """MLflow's run ids by name ("parent", "trial-0003"), as far as they are made."""
        return {} if self._runs is None else dict(self._runs.ids)

    def parent_url(self) -> str | None:
        """Address of the parent run in the UI; None before it is made."""
        if self._runs is None or "parent" not in self._runs.ids:
            return None
        base = masked(self.uri) if is_server(self.uri) else "http://127.0.0.1:5000"
        run_id = self._runs.ids["parent"]
        return f"{base}/#/experiments/{self._runs.experiment_id}/runs/{run_id}"

    def attempt(self) -> None:
        """Send what is there, in the calling thread."""
        try:
            self._send_all()
        except Exception as error:  # training goes on whatever the server does
            self._note_failure(error)

    def _work(self) -> None:
        begin = time.thread_time()
        while not self._stopping.is_set():
            self.attempt()
            if not self._in_doubt:
                self._delay = 0.0
            self.cpu_seconds = time.thread_time() - begin
            self._wake.wait(self._delay or POLL_SECONDS)
            self._wake.clear()

    def _send_all(self) -> None:
        runs = self._connected()
        if runs is None:
            return
        try:
            for path in sorted(self._grown(), key=lambda p: (p.stem in self._failed, p.stem)):
                if path.stem == "parent" or "parent" in runs.ids:
                    self._send_spool(runs, path)
        finally:
            if self._moved:
                self._save_cursors()
        if self._cursors.late and time.monotonic() >= self._next_late:
            self._send_late(runs)
        if not self._cursors.late:
            self.last_error = None

    def _connected(self) -> "Runs | None":
        """The folder's runs, known by the parent's first line; None before it is written."""
        if self._runs is not None and not self._in_doubt:
            return self._runs
        if self._runs is None:
            import_quietly()
            from mtcon_ray.tracking.runs import Runs

            first = tail(self._spools / "parent.jsonl")[:1]
            if not first:
                return None
            identity = sha256(repr(first[0]).encode()).hexdigest()[:32]
            begun, _ = first[0]
            self._runs = Runs(self.uri, self.experiment, self.folder, identity, begun)
        else:
            self._runs.find()
        for name in set(self._cursors.offsets) - set(self._runs.ids):
            del self._cursors.offsets[name]
        self._in_doubt = False
        return self._runs

    def _grown(self) -> list[Path]:
        """Spools with bytes behind their cursor."""
        offsets = self._cursors.offsets
        paths = self._spools.glob("*.jsonl")
        return [p for p in paths if p.stat().st_size > offsets.get(p.stem, 0)]

    def _send_spool(self, runs: "Runs", path: Path) -> None:
        name = path.stem
        self._failed.add(name)  # goes last next time if this raises, not to hold up the others
        for events, end in _groups(tail(path, self._cursors.offsets.get(name, 0))):
            self._send(runs, name, events)
            self._cursors.offsets[name] = end
            self._moved = True
            # The file holds all spools' cursors: once per event it would cost the square of them.
            if time.monotonic() - self._saved >= SAVE_SECONDS:
                self._save_cursors()
        self._failed.discard(name)

    def _save_cursors(self) -> None:
        self._cursors.save()
        self._saved = time.monotonic()
        self._moved = False

    def _send(self, runs: "Runs", name: str, events: list[Event]) -> None:
        try:
            runs.send(name, events)
        except RefusedError as error:
            if len(events) > 1:
                for event in events:
                    self._send(runs, name, [event])
                return
            self.refused.append(f"{name}, event {events[0]['seq']}: {first_line(error)}")
            log.warning("not tracked: %s", self.refused[-1])
        except Exception as error:
            if events[0]["kind"] != "artifact" or not runs.answers():
                raise
            # Only the artifact store is away: metrics and statuses need not wait for it.
            self.last_error = first_line(error)
            self._cursors.late.append({"run": name, "event": events[0]})

    def _send_late(self, runs: "Runs") -> None:
        for item in list(self._cursors.late):
            self._send(runs, item["run"], [item["event"]])  # appends it again if put off again
            self._cursors.late.remove(item)
        self._cursors.save()
        self._next_late = time.monotonic() + (DRAIN_DELAY if self._draining else LONGEST_DELAY)

    def _note_failure(self, error: Exception) -> None:
        self._in_doubt = True
        longest = DRAIN_DELAY if self._draining else LONGEST_DELAY
        self._delay = min(max(FIRST_DELAY, 2 * self._delay), longest)
        message = first_line(error)
        if message != self.last_error:
            log.warning("tracking at %s: %s; spooling", masked(self.uri), message)
        self.last_error = message
        if isinstance(error, LostError):
            self._runs = None  # the experiment may be gone too


def track_sync(folder: Path, uri: str, experiment: str) -> tuple[int, int]:
    """Send what a folder's spools still hold: events sent, events left.

    Only where no driver is at work: a run whose end nobody wrote becomes KILLED.
    """
    sender = Sender(folder, uri, experiment)
    sender._draining = True
    pending = left = sender.pending()
    in_vain = 0
    while left and in_vain < SYNC_ATTEMPTS:
        sender.attempt()
        before, left = left, sender.pending()
        if left >= before:
            in_vain += 1
            time.sleep(min(2.0, 0.25 * 2**in_vain))
    while not left and sender.mark_killed():
        pass
    return pending - left, left


def _groups(events: list[tuple[Event, int]]) -> Iterator[tuple[list[Event], int]]:
    """A run's neighbouring events that go together: its start, as many reports as fit, its end.

    What is neither goes alone.
    """
    group: list[Event] = []
    size = group_end = 0
    for event, end in events:
        added = len(event["metrics"]) if event["kind"] == "report" else 0
        if group and not (_follows(event, group[-1]) and size + added <= METRICS_AT_ONCE):
            yield group, group_end
            group, size = [], 0
        group.append(event)
        size, group_end = size + added, end
    if group:
        yield group, group_end


def _follows(event: Event, last: Event) -> bool:
    return event["kind"] in ("report", "end") and last["kind"] in ("start", "report")
