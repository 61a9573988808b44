"""A board as lines of text: one frame of the live table."""

from mtcon_ray.cli.board import Board, Row
from mtcon_ray.cli.terminal import Terminal, clip, printable
from mtcon_ray.cli.text import accuracy, configuration, duration, table

MAX_ROWS = 15
BAR_COLUMNS = 12
STATES = {
    "RUNNING": "running",
    "FINISHED": "finished",
    "PRUNED": "stopped early",
    "FAILED": "failed",
    "INTERRUPTED": "interrupted",
    "WAITING": "waiting at a rung",
}
COLOURS = {"RUNNING": "cyan", "PRUNED": "dim", "FAILED": "red", "INTERRUPTED": "yellow"}


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
    return f"best {accuracy(best.value)} ({configuration(best.params)})" if best else ""


def time_line(board: Board, elapsed: float) -> str:
    """Time taken, and about how much is left."""
    left = board.seconds_left()
    yet = (
        f", about {duration(left)} left"
        if left is not None and board.num_done < board.num_trials
        else ""
    )
    return f"{duration(elapsed)}{yet}"


def bar(done: int, total: int, columns: int = BAR_COLUMNS) -> str:
    """A bar of blocks with the numbers behind it."""
    full = round(columns * min(1.0, done / total)) if total else 0
    return f"{'█' * full}{'░' * (columns - full)} {done}/{total or '?'}"


def _cells(row: Row, terminal: Terminal, best: bool) -> list[str]:
    names = ["bold", "green"] if best else [COLOURS.get(row.state, "")]
    names = [name for name in names if name]
    text = [row.name, configuration(row.params), bar(row.epoch, row.epochs), accuracy(row.value)]
    state = STATES.get(row.state, row.state.lower())
    text.append(printable(f"{state}: {row.reason}".splitlines()[0]) if row.reason else state)
    return [terminal.style(cell, *names) for cell in text]
