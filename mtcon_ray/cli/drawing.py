"""A board as lines of text: one frame of the live table."""

from mtcon_ray.cli.board import Board, Row
from mtcon_ray.cli.events import Decoding, Downloading, Event, Preparing, Start
from mtcon_ray.cli.terminal import Terminal, clip, printable
from mtcon_ray.cli.text import accuracy, duration, size, table

MAX_ROWS = 15
BAR_COLUMNS, WIDE_COLUMNS = 12, 30
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
    cells = [_cells(row, terminal, row is board.best) for row in shown]
    body = (
        table(["trial", "configuration", "epoch", "val/accuracy", "state"], cells) if cells else []
    )
    hidden = len(board.rows) - len(shown)
    rest = [terminal.style(f"… and {hidden} more", "dim")] if hidden > 0 else []
    body[:1] = [terminal.style(line, "dim") for line in body[:1]]
    return [clip(line, columns - 1) for line in [headline(board, elapsed, terminal), *body, *rest]]


def headline(board: Board, elapsed: float, terminal: Terminal) -> str:
    """Name, how many are done, the leader, time taken and left, in one line."""
    parts = [
        terminal.style(board.name, "bold"),
        f"{board.num_done}/{board.num_trials} done",
        leader(board),
        time_line(board, elapsed),
    ]
    return " · ".join(part for part in parts if part)


def leader(board: Board) -> str:
    """The best value so far and its configuration, "" before there is one."""
    best = board.best
    if best is None:
        return ""
    configuration = f" ({best.configuration})" if best.configuration else ""
    return f"best {accuracy(best.value)}{configuration}"


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
    news = f"{board.num_done}/{board.num_trials} done", leader(board), left
    return "; ".join(part for part in news if part)


def blocks(done: int, total: int, columns: int) -> str:
    """A bar of so many columns."""
    full = round(columns * min(1.0, done / total)) if total else 0
    return "█" * full + "░" * (columns - full)


def bar(done: int, total: int, columns: int = BAR_COLUMNS) -> str:
    """A bar of blocks with the numbers behind it."""
    return f"{blocks(done, total, columns)} {done}/{total or '?'}"


def _cells(row: Row, terminal: Terminal, best: bool) -> list[str]:
    names = ["bold", "green"] if best else [COLOURS.get(row.state, "")]
    names = [name for name in names if name]
    text = [row.name, row.configuration, bar(row.epoch, row.epochs), accuracy(row.value)]
    state = STATES.get(row.state, row.state.lower())
    text.append(printable(f"{state}: {row.reason}") if row.reason else state)
    return [terminal.style(cell, *names) for cell in text]
