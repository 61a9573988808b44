"""What a person sees of a sweep while it runs: a table redrawn in place, or plain lines."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from mtcon_ray.cli.board import Board, Row
from mtcon_ray.cli.drawing import STATES, bar, frame, leader, time_line
from mtcon_ray.cli.terminal import Terminal, clip, printable, visible
from mtcon_ray.cli.text import accuracy, configuration, duration, size
from mtcon_ray.metrics import LOSS, OBJECTIVE
from mtcon_ray.observer import Observer

REDRAW_SECONDS = 0.5
# Plain lines go to log files: no trial may flood them, and a decoding of hours shows a few.
LINE_SECONDS = 1.0
STORE_SECONDS = 5.0
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Console(Observer):
    """Shows every event of a sweep on a terminal; use as a context manager.

    On leaving, the cursor is back and the last frame stays. `quiet` shows notes only.
    """

    def __init__(
        self,
        terminal: Terminal,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal = terminal
        self._clock = clock
        self._started = clock()
        self._board: Board | None = None
        self._quiet = quiet
        self._live = LiveArea(terminal) if terminal.live and not quiet else None
        self._last_line = -math.inf
        self._preparing = "starting…"
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="mtcon-console")

    def __enter__(self) -> "Console":
        if self._live:
            self._ticker.start()
        else:
            self._say("starting")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._live:
            self._ticker.join()
            with self._lock:
                self._preparing = ""
                self._live.draw(self._frame())
                self._live.close()

    def on_note(self, text: str) -> None:
        """News, also shown when quiet."""
        self._say(text, always=True)

    def on_download(self, done: int, total: int) -> None:
        """Bytes downloaded so far."""
        if self._live:
            self._preparing = f"downloading data {bar(done, total, 30)}"
        elif done == total or self._is_time(STORE_SECONDS):
            self._say(f"downloaded {size(done)} of {size(total)}")

    def on_store(self, done: int, total: int) -> None:
        """Images decoded so far."""
        if self._live:
            self._preparing = f"decoding images {bar(done, total, 30)}"
        elif done == total or self._is_time(STORE_SECONDS):
            self._say(f"decoded {done}/{total} images")

    def on_start(self, name: str, folder: Path, plan: Any) -> None:
        """The sweep begins: what it is, where it is."""
        with self._lock:
            self._board = Board(name, plan.num_trials, plan.epochs)
        few = plan.concurrency
        at_a_time = f", {few} at a time" if few and plan.num_trials > 1 else ""
        self._say(
            f"{name}: {plan.num_trials} trial{'s' * (plan.num_trials > 1)} of {plan.epochs} epochs"
            f"{at_a_time}, in {folder}"
        )

    def on_suggest(self, trial: str, params: Mapping[str, Any]) -> None:
        """A trial begins."""
        with self._lock:
            self._known.suggest(trial, params, self._clock())
        if not self._live:
            self._say(f"{trial} started: {configuration(params)}")

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        """An epoch is done; a line for those that were evaluated, the last has its own."""
        with self._lock:
            row = self._known.report(trial, epoch, epochs, metrics, self._clock())
        evaluated = OBJECTIVE in metrics and epoch < epochs
        if not self._live and evaluated and self._is_time(LINE_SECONDS):
            loss = f", loss {metrics[LOSS]:.3f}" if LOSS in metrics else ""
            self._say(f"{trial} epoch {epoch}/{epochs}: val/accuracy {accuracy(row.value)}{loss}")

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        """A trial is over."""
        with self._lock:
            board = self._known
            row = board.end(trial, status, value, reason, self._clock())
            line = self._end_line(board, row)
        if not self._live:
            self._say(line)

    @property
    def _known(self) -> Board:
        assert self._board is not None, "on_start comes first"
        return self._board

    def _end_line(self, board: Board, row: Row) -> str:
        value = f", val/accuracy {accuracy(row.value)}" if row.value is not None else ""
        why = f" ({row.reason})" if row.reason else ""
        news = [f"{board.num_done}/{board.num_trials} done", leader(board)]
        left = time_line(board, self._clock() - self._started).partition(", ")[2]
        standing = "; ".join(part for part in (*news, left) if part)
        return f"{row.name} {STATES.get(row.state, row.state)}{why}{value}; {standing}"

    def _say(self, text: str, *, always: bool = False) -> None:
        text = printable(text)
        with self._lock:
            if self._live:
                self._live.draw(self._frame(), above=text)
            elif always or not self._quiet:
                self._last_line = self._clock()
                stamp = duration(self._clock() - self._started)
                self._terminal.write(f"[{stamp:>5}] {text}\n")

    def _is_time(self, seconds: float) -> bool:
        return self._clock() - self._last_line >= seconds

    def _frame(self) -> list[str]:
        if self._board is None:
            return [self._preparing] if self._preparing else []
        return frame(self._board, self._clock() - self._started, self._terminal)

    def _tick(self) -> None:
        assert self._live is not None
        while not self._closing.wait(REDRAW_SECONDS):
            with self._lock:
                self._live.draw(self._frame())


class LiveArea:
    """The last lines of a terminal, overwritten in place: one write per frame, no flicker."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._widths: list[int] = []  # of the lines on the screen
        self._hidden = False

    def draw(self, lines: list[str], above: str | None = None) -> None:
        """Replace the area by these lines; `above` is printed before it and stays."""
        columns, _ = self._terminal.size
        # A terminal made narrower has wrapped the old lines: they take more rows than before.
        rows = sum(max(1, -(-width // columns)) for width in self._widths)
        lines = [clip(line, columns - 1) for line in lines]
        news = above.splitlines() if above else []
        text = "" if self._hidden else HIDE_CURSOR
        text += f"\r\x1b[{rows}A" if rows else "\r"
        text += "".join(f"{line}\x1b[K\n" for line in [*news, *lines]) + "\x1b[J"
        self._hidden = True
        self._widths = [visible(line) for line in lines]
        self._terminal.write(text)

    def close(self) -> None:
        """Give the cursor back below the area."""
        if self._hidden:
            self._terminal.write(SHOW_CURSOR)
        self._widths, self._hidden = [], False
