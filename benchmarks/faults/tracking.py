"""An MLflow that is away, answers 500, never answers, takes 5 s for each answer, or is locked.

A real server runs behind a proxy, which breaks and repairs the connection. The locked case has no
server: another process holds the SQLite database of the root.
"""

import http.client
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import NAME, PROGRAM, TRACKED
from benchmarks.faults.rounds import Outcome, Round
from benchmarks.faults.share import time_in_tracking, timed_tracking
from mtcon_ray.base.paths import MLFLOW_DATABASE
from tests.tracking.mlflow_server import Server

LOCKED = "locked"
WAYS = ("away", "500", "silent", "slow", LOCKED)
SLOW_SECONDS = 5.0
LOCKED_SECONDS = 15.0
# Number of epochs that must be recorded while the server is broken.
EPOCHS_WITHOUT = 5
# Share of rounds in which the server stays broken until the training has ended.
TO_THE_END = 0.2
# Largest share of the training thread's time that tracking may take.
MOST_PERCENT = 1.0


class Proxy(ThreadingHTTPServer):
    """A proxy on loopback in front of a server. `way` is None or in WAYS, except LOCKED."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target).netloc
        self.way: str | None = None
        self.num_broken = 0
        self.repaired = threading.Event()

    @property
    def uri(self) -> str:
        """The address by which programs reach the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def break_by(self, way: str) -> None:
        """Breaks all requests from now on."""
        self.way = way

    def repair(self) -> None:
        """Passes later requests on again, and ends the connections of unanswered requests."""
        self.way = None
        self.repaired.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing: programs close connections after a missing answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _answer(self) -> None:
        """Answers a request as the proxy's `way` requires."""
        way = self.server.way
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if way is not None:
            self.server.num_broken += 1
        if way == "away":
            # A connection reset, as from a killed server.
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if way == "500":
            self._send(500, [], b"broken")
            return
        if way == "silent":
            self.server.repaired.wait()
            self.close_connection = True
            return
        if way == "slow":
            time.sleep(SLOW_SECONDS)
        connection = http.client.HTTPConnection(self.server.target, timeout=600)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            self._send(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer


@contextmanager
def proxied(root: Path) -> Iterator[Proxy]:
    """Runs a real server behind a proxy."""
    server = Server(root)
    server.start()
    proxy = Proxy(server.uri)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.repair()
        proxy.shutdown()
        proxy.server_close()
        server.kill()


class Database:
    """A root's database without a server. LOCKED holds it by an exclusive transaction."""

    def __init__(self, path: Path) -> None:
        self.uri = f"sqlite:///{path}"
        # The timeout covers a running transaction of the training.
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)

    def break_by(self, way: str) -> None:
        """Locks the database."""
        assert way == LOCKED
        self._connection.execute("BEGIN EXCLUSIVE")

    def repair(self) -> None:
        """Unlocks the database."""
        self._connection.rollback()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def _tracked(root: Path, way: str) -> AbstractContextManager[Proxy | Database]:
    return closing(Database(root / MLFLOW_DATABASE)) if way == LOCKED else proxied(root)


def mlflow(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Breaks the server in the middle of a training, which must continue meanwhile.

    Tracking must take less than MOST_PERCENT of the training thread's time.
    """
    case = Case(folder, round_, outcome, TRACKED)
    try:
        case.prepare()
        way, to_the_end = case.choose(WAYS), case.random.random() < TO_THE_END
        # Longer than MLflow's own timeout for a lock.
        least = case.random.uniform(0, LOCKED_SECONDS) if way == LOCKED else 0.0
        with _tracked(case.root, way) as server:
            case.changes["tracking"] = {"uri": server.uri}
            case.variables["site"] = timed_tracking(case.folder)
            outcome.happened.append(f"{way}{' to the end' if to_the_end else ''}")
            command = case.start()
            if case.reach(command, case.early_moment()):
                server.break_by(way)
                before, begin = case.num_epochs, time.monotonic()
                goes_on = command.until(
                    lambda: (
                        case.num_epochs >= before + EPOCHS_WITHOUT
                        and time.monotonic() >= begin + least
                    ),
                    f"{EPOCHS_WITHOUT} epochs without the server",
                )
                if to_the_end and goes_on:
                    case.expect_end(command, [0])
                    case.expect(
                        way == "slow" or "not all is in MLflow" in command.printed(),
                        "the end does not tell that MLflow lacks events",
                    )
                broken = time.monotonic() - begin
                outcome.happened.append(f"{case.num_epochs - before} epochs meanwhile")
                server.repair()
                outcome.measured["seconds without the server"] = round(broken, 1)
                if isinstance(server, Proxy):
                    outcome.happened.append(f"{server.num_broken} requests failed")
            code = command.wait()
            case.expect(code == 0, f"the training ended with {code}")
            outcome.measured["seconds from the last epoch to the end"] = round(
                time.time() - case.last_epoch_time, 1
            )
            _judge_time(case)
            if "not all is in MLflow" in command.printed():
                words = [*PROGRAM, "audit", NAME, "--repair", "--root", str(case.root)]
                case.expect_end(case.launch(words), [0])
            case.judge()
    finally:
        case.close()


def _judge_time(case: Case) -> None:
    """Records the training thread's time in tracking, and checks its share."""
    spent, seconds = time_in_tracking(case.folder)
    percent, measured = 100 * spent / seconds, case.outcome.measured
    measured["ms of tracking per epoch"] = round(1000 * spent / (case.job.epochs - 1), 1)
    measured["percent of the training thread's time in tracking"] = round(percent, 2)
    case.expect(percent < MOST_PERCENT, f"tracking takes {percent:.2f} % of the training thread")
