"""Waiting for other processes in tests, with one limit for the slowest machine."""

import time
from collections.abc import Callable
from contextlib import suppress
from subprocess import Popen
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

# Only reached if something fails: tests continue as soon as the condition holds.
PATIENCE_SECONDS = 600


def wait_until(
    ready: Callable[[], object], what: str, *, process: Popen[Any] | None = None,
    told: Callable[[], object] = lambda: "", not_yet: type[Exception] = OSError, pause: float = 0.2,
) -> None:  # fmt: skip
    """Waits until `ready()` is true; polls every `pause` seconds.

    `ready` may raise `not_yet`, which counts as false. Fails after PATIENCE_SECONDS, or once
    `process` has ended, with a message of `what` was awaited and the text that `told()` returns.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        ended = process is not None and process.poll() is not None
        with suppress(not_yet):
            if ready():
                return
        assert not ended, f"{process} ended without {what}: {told()}"
        assert time.monotonic() < deadline, f"no {what} in {PATIENCE_SECONDS} s: {told()}"
        time.sleep(pause)


def status_of(url: str, data: bytes | None = None, **headers: str) -> int:
    """Returns the HTTP status of a GET, or of a POST of `data`. Raises OSError without one."""
    try:
        with urlopen(Request(url, data, headers), timeout=PATIENCE_SECONDS) as page:
            return int(page.status)
    except HTTPError as error:
        error.close()
        return error.code
