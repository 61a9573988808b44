"""An MLflow server that is away, answers 500, never answers, or takes 5 s for each answer.

The server is a real one, behind a proxy that breaks and repairs the connection.
"""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import NAME, PROGRAM, TRAIN
from benchmarks.faults.rounds import Outcome, Round
from tests.tracking.mlflow_server import Server

WAYS = ("away", "500", "silent", "slow")
SLOW_SECONDS = 5.0
# So many epochs must be recorded while the server is broken.
EPOCHS_WITHOUT = 5
# The share of rounds in which the server stays broken until the training has ended.
TO_THE_END = 0.2


class Proxy(ThreadingHTTPServer):
    """A proxy on loopback in front of a server; `way` is None or one of WAYS."""

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

    def repair(self) -> None:
        """Passes all requests on again, but for those that wait for an answer already."""
        self.way = None
        self.repaired.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: programs close connections that are not answered."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _answer(self) -> None:
        """Answers a request as the proxy's `way` tells."""
        way = self.server.way
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if way is not None:
            self.server.num_broken += 1
        if way == "away":
            # A reset, as from a server that was killed.
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


def mlflow(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Breaks the server in the middle of a training, which must go on meanwhile."""
    case = Case(folder, round_, outcome, TRAIN)
    try:
        case.prepare()
        with proxied(case.root) as proxy:
            case.changes["tracking"] = {"uri": proxy.uri}
            way, to_the_end = case.choose(WAYS), case.random.random() < TO_THE_END
            outcome.happened.append(f"{way}{' to the end' if to_the_end else ''}")
            command = case.start()
            if case.reach(command, case.early_moment()):
                proxy.way, before, begin = way, case.num_epochs, time.monotonic()
                goes_on = command.until(
                    lambda: case.num_epochs >= before + EPOCHS_WITHOUT,
                    f"{EPOCHS_WITHOUT} epochs without the server",
                )
                if to_the_end and goes_on:
                    case.expect_end(command, [0])
                    case.expect(
                        way == "slow" or "NOT ALL IS IN MLFLOW" in command.printed(),
                        "the end does not tell that MLflow lacks events",
                    )
                broken, outcome.happened = (
                    time.monotonic() - begin,
                    [
                        *outcome.happened,
                        f"{case.num_epochs - before} epochs meanwhile",
                    ],
                )
                proxy.repair()
                outcome.measured["seconds without the server"] = round(broken, 1)
                outcome.happened.append(f"{proxy.num_broken} requests failed")
            code = command.wait()
            case.expect(code == 0, f"the training ended with {code}")
            outcome.measured["seconds from the last epoch to the end"] = round(
                time.time() - case.last_epoch_time, 1
            )
            if "NOT ALL IS IN MLFLOW" in command.printed():
                words = [*PROGRAM, "track-sync", NAME, "--root", str(case.root)]
                case.expect_end(case.launch(words), [0])
            case.judge()
    finally:
        case.close()
