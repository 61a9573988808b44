"""Display of a running sweep: lines of its events, and a last line that is redrawn."""

import io
import math
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from shutil import get_terminal_size
from time import monotonic
from typing import IO, Any, TextIO, cast

import click
from rich.console import Console as RichConsole
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.metrics import LOSS, objective
from mtcon_ray.base.status import Status
from mtcon_ray.display import presentation as show
from mtcon_ray.display.sweep_progress import SweepProgress, TrialProgress
from mtcon_ray.display.tables import cell

# At most about a line per second of epochs, and a line per 5 s while images are decoded.
LINE_SECONDS = 1.0
DATA_SECONDS = 5.0
# At least a line per minute if epochs are not probed.
SILENT_SECONDS = 60.0
NOTEBOOK_COLUMNS = 100


class Terminal:
    """A stream to print to, by default standard output.

    It may be a terminal with a last line to redraw (`live`, respects TERM), or a `notebook`.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self.notebook = type(self.stream).__module__.startswith("ipykernel")

    @property
    def columns(self) -> int | None:
        """Columns of the terminal as they are now, None where output is not a terminal."""
        return get_terminal_size().columns if self.live else None

    def write(self, text: str) -> None:
        """Writes and flushes text, with "?" for characters that the stream's encoding lacks.

        A stream without an encoding takes all characters. Ignores errors: a closed terminal must
        not end a sweep.
        """
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        with suppress(OSError):
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()

    def flush(self) -> None:
        """Does nothing: `write` flushes."""


def say(text: object, *, err: bool = False) -> None:
    """Prints a line with control characters written out. An error of standard error is ignored."""
    with suppress(OSError) if err else nullcontext():
        click.echo(show.printable(str(text)), err=err)


def warn(text: str) -> None:
    """Prints a warning to standard error."""
    say(show.hanging(f"warning: {text}"), err=True)


def open_closed_streams() -> None:
    """Opens the null device for each standard stream closed by the caller.

    Otherwise the next opened file would get the stream's descriptor, and output of libraries and
    child processes would be written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # os.open takes the lowest free descriptor, which is the closed stream's.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def drop_unwritten() -> None:
    """Discards output refused by a full or closed stream.

    Python would try again at its exit, print an error and change the exit code.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            setattr(sys, name, None)


class Console(Callbacks, AbstractContextManager["Console"]):
    """Shows the events of a sweep, as a context manager.

    On exit the cursor is restored. `quiet` shows notes only.
    """

    def __init__(self, terminal: Terminal, *, quiet: bool = False) -> None:
        self._terminal = terminal
        self._quiet = quiet
        self._started = monotonic()
        self._preparing = "starting…"
        self._progress: SweepProgress | None = None
        self._live: Live | None = None
        self._last_line = -math.inf

    def __enter__(self) -> "Console":
        if self._terminal.live and not self._quiet:
            file = cast(IO[str], self._terminal)
            # Redirected streams would outlive the line in libraries imported meanwhile, and
            # standard error may be a file.
            self._live = Live(
                console=RichConsole(file=file, force_terminal=True, color_system=None),
                get_renderable=self._frame,
                refresh_per_second=2,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
        self._log("starting")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._progress:
            self._log(f"{self._progress.name} ended: {self._progress.standing_text(running=False)}")
        if self._live:
            self._live.stop()
        if self._terminal.notebook:
            self._terminal.write("\n")

    def on_note(self, text: str) -> None:
        """Prints a note, also if quiet."""
        self._log(text, always=True)

    def on_abort(self, error: str) -> None:
        """Ends the display and prints the error as at the end of any command."""
        if self._live:
            self._live.stop()
        self._print(show.hanging(f"error: {error}"))

    def on_phase(self, what: str) -> None:
        """Shows that a long preparation begins."""
        self._preparing = f"{what}…"
        self._log(f"preparing: {what}")

    def on_download(self, done: int, total: int) -> None:
        """Shows the bytes downloaded so far."""
        self._show_data("downloading data", done, total, f"{decimal(done)} of {decimal(total)}")

    def on_decode(self, done: int, total: int) -> None:
        """Shows the images decoded so far."""
        self._show_data("decoding images", done, total, f"{done}/{total}")

    def on_embed(self, done: int, total: int) -> None:
        """Shows the images embedded so far."""
        self._show_data("embedding images", done, total, f"{done}/{total}")

    def _show_data(self, doing: str, done: int, total: int, amount: str) -> None:
        self._preparing = f"{doing}: {amount}"
        if done == total or self._is_time(DATA_SECONDS):
            self._log(f"{doing}: {amount}")

    def on_start(self, name: str, folder: Path, plan: Any) -> None:
        """Prints the sweep's size and folder."""
        self._progress = SweepProgress(name, plan)
        trials = f"{plan.num_trials} trial{'s' * (plan.num_trials > 1)}"
        text = f"{name}: {trials} of {plan.count_text('epochs')} epochs"
        if plan.num_trials > 1 and plan.concurrency:
            text += f", {plan.concurrency} at a time"
        self._log(f"{text}, in {folder}")

    def on_suggest(self, trial: str, params: Mapping[str, Any]) -> None:
        """Shows a trial that starts or resumes."""
        text = show.configuration_text(params)
        epochs = int(params.get("train.epochs", self._sweep.plan.epochs))
        self._sweep.start(trial, text, epochs, self._elapsed)
        self._log(f"{trial} started: {text}")

    def on_known(self, trial: Any, status: str) -> None:
        """Records the state of a trial of a resumed sweep."""
        own = trial.last_epoch, trial.epochs, trial.value, Status(status)
        self._sweep.trials[trial.name] = TrialProgress(show.configuration_text(trial.params), *own)

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        """Shows a completed epoch. In a log only some epochs are shown, never the last."""
        value = objective(metrics)
        self._sweep.report(trial, epoch, epochs, value, self._elapsed)
        pause = SILENT_SECONDS if value is None else LINE_SECONDS
        if epoch < epochs and self._is_time(pause):
            loss = f", loss {metrics[LOSS]:.3f}" if LOSS in metrics else ""
            self._log(f"{trial} epoch {epoch}/{epochs}{self._score(value)}{loss}")
        self._redraw()

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        """Shows the end of a trial and the progress of the sweep."""
        row = self._sweep.end(trial, Status(status), value)
        after = f" after epoch {row.epoch}/{row.epochs}" if row.epoch else ""
        why = f" ({show.one_line(reason)})" if reason else ""
        outcome = f"{row.status.words}{after}{why}{self._score(row.value)}"
        self._log(f"{trial} {outcome}; {self._sweep.standing_text()}")

    @property
    def _sweep(self) -> SweepProgress:
        assert self._progress is not None, "on_start comes first"
        return self._progress

    @property
    def _elapsed(self) -> float:
        return monotonic() - self._started

    def _score(self, value: float | None) -> str:
        name = self._sweep.plan.objective
        return "" if value is None else f", {name} {show.accuracy_text(value)}"

    def _log(self, text: str, *, always: bool = False) -> None:
        if self._quiet and not always:
            return
        self._last_line = monotonic()
        line = f"[{show.duration_text(self._elapsed):>5}] {show.hanging(text)}"
        if self._live:
            self._live.console.print(cell(line), soft_wrap=True)
        else:
            self._print(line)
        self._redraw()

    def _print(self, text: str) -> None:
        """Prints lines, in a notebook in place of the bar."""
        blank = f"\r{'':{NOTEBOOK_COLUMNS}}\r" if self._terminal.notebook else ""
        self._terminal.write(f"{blank}{text}\n")

    def _redraw(self) -> None:
        """Shows the last line with a bar in a notebook, where `Live` needs another package."""
        if self._terminal.notebook and not self._quiet and self._progress:
            text = f"{self._progress.bar(20)} {self._progress.standing_text()}"
            self._terminal.write(f"\r{text:<{NOTEBOOK_COLUMNS}.{NOTEBOOK_COLUMNS}}")

    def _is_time(self, seconds: float) -> bool:
        return monotonic() - self._last_line >= seconds

    def _frame(self) -> Text:
        """Returns the last line: what is prepared, or the sweep, which is shortened to fit."""
        if (sweep := self._progress) is None:
            return cell(self._preparing, shortened=True)
        parts = (sweep.name, show.duration_text(self._elapsed), sweep.standing_text())
        return cell(" · ".join(parts), shortened=True)
