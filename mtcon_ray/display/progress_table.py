"""The live display of a sweep: a headline, and a table of as many trials as fit."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mtcon_ray.base.status import Status
from mtcon_ray.display.presentation import accuracy_text, duration_text
from mtcon_ray.display.sweep_progress import SweepProgress, TrialProgress
from mtcon_ray.display.tables import cell, new_grid

MAX_TRIALS = 15
# Lines of the terminal without trials: headline, column names, hidden trials, the cursor.
OTHER_LINES = 4
STATE_COLUMNS = 18


def progress_table(
    progress: SweepProgress, elapsed: float, size: tuple[int, int]
) -> RenderableType:
    """Returns the display after so many seconds: running trials first, then the best.

    `size` is columns and lines of the terminal. Configurations are shortened to its width. Values
    and states never are.
    """
    columns, lines = size
    room = max(1, min(MAX_TRIALS, lines - OTHER_LINES))
    running = progress.running[:room]
    shown = [*running, *progress.ended[: room - len(running)]]
    parts: list[RenderableType] = [_headline(progress, elapsed)]
    if shown:
        parts.append(_trials(progress, shown, columns))
    hidden = len(progress.trials) - len(shown)
    if hidden:
        parts.append(Text(f"… and {hidden} more", style="dim"))
    return Group(*parts)


def bar(done: int, total: int, columns: int) -> str:
    """Returns a bar of blocks.

    >>> bar(1, 2, 4)
    '██░░'
    """
    full = round(columns * min(1.0, done / total)) if total else 0
    return "█" * full + "░" * (columns - full)


def _headline(progress: SweepProgress, elapsed: float) -> Text:
    """Name, number done, times, best value and its configuration, which is shortened first."""
    times = ", ".join(filter(None, (duration_text(elapsed), progress.left_text())))
    parts = progress.name, progress.done_text(), times, progress.best_text()
    line = cell(" · ".join(filter(None, parts)), shortened=True)
    line.stylize("bold", 0, len(progress.name))
    return line


def _trials(progress: SweepProgress, trials: Iterable[TrialProgress], columns: int) -> Table:
    best, table = progress.best, new_grid()
    table.add_column("trial", no_wrap=True)
    table.add_column("configuration")
    table.add_column("epoch", no_wrap=True)
    table.add_column(progress.objective, no_wrap=True)
    # Reasons of failures are shortened. All states have room.
    table.add_column("state", no_wrap=True, max_width=max(STATE_COLUMNS, columns // 4))
    for trial in trials:
        texts = [
            trial.name,
            trial.configuration,
            f"{trial.epoch}/{trial.epochs or '?'}",
            accuracy_text(trial.value),
            state_text(trial.status, trial.reason),
        ]
        style = "bold green" if trial is best else trial.status.colour
        table.add_row(*(cell(text, shortened=True) for text in texts), style=style)
    return table


def state_text(status: Status, reason: str | None) -> str:
    """Returns the state in words, with the first line of a failure's reason."""
    first = (reason or "").strip().partition("\n")[0]
    return f"{status.words}: {first}" if first else status.words
