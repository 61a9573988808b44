"""How long tests wait for other processes: one number, for the slowest machine there is."""

import time
from collections.abc import Callable
from subprocess import Popen
from typing import Any
from urllib.request import urlopen

# Nobody waits this long for what works: it only says when to give up.
PATIENCE_SECONDS = 600


def wait_until(
    ready: Callable[[], object],
    what: str,
    *,
    process: Popen[Any] | None = None,
    told: Callable[[], object] = lambda: "",
    not_yet: type[Exception] = OSError,
    pause: float = 0.2,
) -> None:
    """Ask again after every `pause` (seconds) until `ready`, which may also raise `not_yet`.

    Fails with `what` was waited for and what has been `told`, of a log or by the process, when
    patience ends or the `process` that should bring it about.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        ended = process is not None and process.poll() is not None
        try:
            if ready():
                return
        except not_yet:
            pass
        assert not ended, f"{process} ended without {what}: {told()}"
        assert time.monotonic() < deadline, f"no {what} in {PATIENCE_SECONDS} s: {told()}"
        time.sleep(pause)


def answers(url: str) -> bool:
    """Whether a page is there; raises OSError where it is not, or nobody answers in 30 s."""
    with urlopen(url, timeout=30) as page:
        return bool(page.status == 200)
