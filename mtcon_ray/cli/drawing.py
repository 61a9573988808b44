"""A board as lines of text: one frame of the live table."""

import sys
from collections.abc import Sequence

from mtcon_ray.cli.board import Board, Row
from mtcon_ray.cli.events import Decoding, Downloading, Event, Preparing, Start
from mtcon_ray.cli.terminal import Terminal, clip, printable, visible
from mtcon_ray.cli.text import accuracy, duration, shortened, size, table

MAX_ROWS = 15
BAR_COLUMNS, WIDE_COLUMNS = 12, 30
CONFIGURATION, STATE = 1, 4  # columns of the table
# What is left of a configuration and of a failure's reason before the bars are given up.
LEAST_CONFIGURATION, LEAST_STATE = 16, 24
# A shorter piece of a configuration says nothing.
LEAST_LEADER = 8
STATES = {
    "RUNNING": "running",
    "FINISHED": "finished",
    "PRUNED": "stopped early",
    "FAILED": "failed",
    "INTERRUPTED": "interrupted",
    "WAITING": "waiting at a rung",
}
COLOURS = {"RUNNING": "cyan", "PRUNED": "dim", "FAILED": "red", "INTERRUPTED": "yellow"}


class Scene:
    """What a live area shows: a line of what is prepared, then a sweep's board."""

    def __init__(self, preparing: str) -> None:
        self.preparing = preparing
        self.board: Board | None = None

    def tell(self, event: Event, now: float) -> None:
        """What has happened, at that time of the sweep's clock."""
        match event:
            case Preparing(what):
                self.preparing = f"{what}…"
            case Downloading(done, total):
                news = f"{size(done)} of {size(total)}"
                self.preparing = f"downloading data {blocks(done, total, WIDE_COLUMNS)} {news}"
            case Decoding(done, total):
                self.preparing = f"decoding images {bar(done, total, WIDE_COLUMNS)}"
            case Start():
                self.board = Board(event)
            case _ if self.board:
                self.board.tell(event, now)

    def lines(self, elapsed: float, terminal: Terminal) -> list[str]:
        """The frame after so many seconds."""
        if self.board:
            return frame(self.board, elapsed, terminal)
        return [self.preparing] if self.preparing else []


def frame(board: Board, elapsed: float, terminal: Terminal) -> list[str]:
    """Header, column names and the trials that fit: running first, then the best."""
    columns, lines = terminal.size
    room = max(1, min(MAX_ROWS, lines - 4))
    running = board.running[:room]
    shown = [*running, *board.ended[: room - len(running)]]
    body = _table(board, shown, terminal, columns - 1) if shown else []
    hidden = len(board.rows) - len(shown)
    rest = [terminal.style(f"… and {hidden} more", "dim")] if hidden > 0 else []
    body[:1] = [terminal.style(line, "dim") for line in body[:1]]
    head = headline(board, elapsed, terminal, columns - 1)
    return [clip(line, columns - 1) for line in [head, *body, *rest]]


def headline(board: Board, elapsed: float, terminal: Terminal, columns: int) -> str:
    """Name, how many are done, the leader, time taken and left; the configuration is cut first."""

    def line(most: int) -> str:
        parts = [
            terminal.style(board.name, "bold"),
            f"{board.num_done}/{board.num_trials} done",
            leader(board, most),
            time_line(board, elapsed),
        ]
        return " · ".join(part for part in parts if part)

    most = len(board.best.configuration) if board.best else 0
    return line(most - max(0, visible(line(most)) - columns))


def leader(board: Board, most: int) -> str:
    """The best value so far, "" before there is one, and `most` columns of its configuration."""
    best = board.best
    if best is None:
        return ""
    whole = best.configuration
    shown = whole if len(whole) <= most else clip(whole, most) if most >= LEAST_LEADER else ""
    return f"best {accuracy(best.value)}" + (f" ({shown})" if shown else "")


def time_line(board: Board, elapsed: float) -> str:
    """Time taken, and about how much is left."""
    left = board.seconds_left()
    yet = (
        f", about {duration(left)} left"
        if left is not None and board.num_done < board.num_trials
        else ""
    )
    return f"{duration(elapsed)}{yet}"


def standing(board: Board, elapsed: float) -> str:
    """How many are done, the leader and the time left, for a line."""
    left = time_line(board, elapsed).partition(", ")[2]
    news = f"{board.num_done}/{board.num_trials} done", leader(board, sys.maxsize), left
    return "; ".join(part for part in news if part)


def blocks(done: int, total: int, columns: int) -> str:
    """A bar of so many columns."""
    full = round(columns * min(1.0, done / total)) if total else 0
    return "█" * full + "░" * (columns - full)


def bar(done: int, total: int, columns: int = BAR_COLUMNS) -> str:
    """A bar of blocks with the numbers behind it."""
    return f"{blocks(done, total, columns)} {done}/{total or '?'}"


def _table(board: Board, rows: Sequence[Row], terminal: Terminal, columns: int) -> list[str]:
    """Returns the rows in at most `columns`, if that is enough for values and states."""
    header = ["trial", "configuration", "epoch", board.objective, "state"]
    best = board.best
    states = max(len(_state(row)) for row in rows) + len(":…")
    cuts = [(STATE, max(states, LEAST_STATE)), (CONFIGURATION, LEAST_CONFIGURATION)]
    cells, fits = shortened([header, *(_cells(row, BAR_COLUMNS) for row in rows)], columns, cuts)
    if not fits:
        cuts += [(STATE, states), (CONFIGURATION, 1)]
        cells, _ = shortened([header, *(_cells(row, 0) for row in rows)], columns, cuts)
    body = [
        [terminal.style(cell, *_style(row, best)) for cell in line]
        for row, line in zip(rows, cells[1:], strict=True)
    ]
    return table(cells[0], body)


def _cells(row: Row, bar_columns: int) -> list[str]:
    state = printable(f"{_state(row)}: {row.reason}") if row.reason else _state(row)
    progress = bar(row.epoch, row.epochs, bar_columns).strip()
    return [row.name, row.configuration, progress, accuracy(row.value), state]


def _state(row: Row) -> str:
    return STATES.get(row.state, row.state.lower())


def _style(row: Row, best: Row | None) -> list[str]:
    names = ["bold", "green"] if row is best else [COLOURS.get(row.state, "")]
    return [name for name in names if name]
