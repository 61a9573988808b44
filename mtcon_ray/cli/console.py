"""What a person sees of a sweep while it runs: a table redrawn in place, or plain lines."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from mtcon_ray.cli.board import Board
from mtcon_ray.cli.drawing import Scene, standing
from mtcon_ray.cli.events import (
    Close,
    Decoding,
    Downloading,
    End,
    Event,
    Known,
    Preparing,
    Report,
    Start,
    Starting,
    Suggest,
    one_line,
)
from mtcon_ray.cli.lines import stamped, written
from mtcon_ray.cli.live import Live
from mtcon_ray.cli.terminal import Terminal, printable
from mtcon_ray.cli.text import configuration
from mtcon_ray.metrics import LOSS, objective
from mtcon_ray.observer import Observer

# Plain lines go to log files: no trial may flood them, and a decoding of hours shows a few.
LINE_SECONDS = 1.0
STORE_SECONDS = 5.0
# Nor may a long training be silent; of many at a time, so many lines a minute tell enough.
SILENT_SECONDS = 60.0
LINES_A_MINUTE = 10


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
        self._quiet = quiet
        self._scene = Scene("starting…")
        self._live: Live | None = None
        self._last_line = -math.inf
        self._told: dict[str, float] = {}  # when each trial had its last line
        self._lock = threading.RLock()

    def __enter__(self) -> "Console":
        if self._terminal.live and not self._quiet:
            self._live = Live(self._terminal, self._frame, self._lock)
        self._say(Starting())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._scene.board:
            self._hear(closing(self._scene.board))
        if self._live:
            self._scene.preparing = ""
            self._live.close()

    def on_note(self, text: str) -> None:
        """News, also shown when quiet."""
        self._print(text, always=True)

    def on_phase(self, what: str) -> None:
        """A long preparation begins."""
        self._hear(Preparing(what))

    def on_download(self, done: int, total: int) -> None:
        """Bytes downloaded so far."""
        self._hear(Downloading(done, total), say=done == total or self._is_time(STORE_SECONDS))

    def on_store(self, done: int, total: int) -> None:
        """Images decoded so far."""
        self._hear(Decoding(done, total), say=done == total or self._is_time(STORE_SECONDS))

    def on_start(self, name: str, folder: Path, plan: Any) -> None:
        """The sweep begins: what it is, where it is."""
        few = plan.concurrency if plan.num_trials > 1 else None
        start = Start(
            name,
            plan.num_trials,
            plan.epochs,
            few or None,
            str(folder),
            plan.objective,
            plan.select,
        )
        self._hear(start, say=False)
        self._print(written(start))

    def on_suggest(self, trial: str, params: Mapping[str, Any]) -> None:
        """A trial begins."""
        own = int(params.get("train.epochs", self._board.epochs))
        self._told[trial] = self._elapsed
        other = own if own != self._board.epochs else None
        self._hear(Suggest(trial, one_line(configuration(params)), other))

    def on_known(
        self, trial: str, params: Mapping[str, Any], status: str, epoch: int, epochs: int,
        value: float | None, reason: str | None,
    ) -> None:  # fmt: skip
        """A trial of a resumed sweep as it stands."""
        why = one_line(reason) if reason else None
        text = one_line(configuration(params))
        name = self._board.objective
        self._hear(Known(trial, text, status, epoch, epochs, value, why, name))

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        """An epoch is done; a line for some, the last has its own."""
        name = self._board.objective
        report = Report(trial, epoch, epochs, objective(metrics), metrics.get(LOSS), name)
        say = epoch < epochs and self._is_due(report)
        if say:
            self._told[trial] = self._elapsed
        self._hear(report, say=say)

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        """A trial is over."""
        board, now = self._board, self._elapsed
        row = board.rows.get(trial)
        after = (row.epoch, row.epochs) if row and row.epoch and status != "FINISHED" else None
        value = row.value if row and value is None else value
        end = End(trial, status, after, value, one_line(reason) if reason else None)
        end = end._replace(objective=board.objective)
        with self._lock:
            board.tell(end, now)
            end = end._replace(standing=one_line(standing(board, now)))
        self._say(end)

    @property
    def _board(self) -> Board:
        assert self._scene.board is not None, "on_start comes first"
        return self._scene.board

    @property
    def _elapsed(self) -> float:
        return self._clock() - self._started

    def _hear(self, event: Event, *, say: bool = True) -> None:
        with self._lock:
            self._scene.tell(event, self._elapsed)
        if say:
            self._say(event)

    def _say(self, event: Event) -> None:
        if not self._live:
            self._print(written(event))

    def _print(self, text: str, *, always: bool = False) -> None:
        text = printable(text)
        if self._live:
            self._live.draw(above=text)
        elif always or not self._quiet:
            self._last_line = self._clock()
            self._terminal.write(f"{stamped(self._elapsed, text)}\n")

    def _is_time(self, seconds: float) -> bool:
        return self._clock() - self._last_line >= seconds

    def _is_due(self, report: Report) -> bool:
        at_a_time = len(self._board.running)
        silent = SILENT_SECONDS * max(1, at_a_time / LINES_A_MINUTE)
        if self._elapsed - self._told.setdefault(report.trial, self._elapsed) >= silent:
            return True
        return report.value is not None and self._is_time(LINE_SECONDS)

    def _frame(self) -> list[str]:
        return self._scene.lines(self._elapsed, self._terminal)


def closing(board: Board) -> Close:
    """A sweep's last event, as its board stands."""
    best = board.best if board.num_trials > 1 else None
    close = Close(board.name, board.num_done, board.num_trials, objective=board.objective)
    if best is None:
        return close
    return close._replace(
        best=best.name, value=best.value, configuration=best.configuration or None
    )
