"""The last lines of a terminal, redrawn in place."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from mtcon_ray.cli.terminal import Terminal, clip, visible

REDRAW_SECONDS = 0.5
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Live:
    """Draws frames until it is closed, by a thread of its own and with each text above them.

    Frames are made under `lock`, which whoever changes what they show takes too.
    """

    def __init__(
        self,
        terminal: Terminal,
        frame: Callable[[], list[str]],
        lock: AbstractContextManager[object],
    ) -> None:
        self._area = LiveArea(terminal)
        self._frame = frame
        self._lock = lock
        self._closing = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="mtcon-console")
        self._ticker.start()

    def draw(self, above: str | None = None) -> None:
        """Draw what there is now, below a text that stays."""
        with self._lock:
            self._area.draw(self._frame(), above)

    def close(self) -> None:
        """Leave the last frame where it is, and give the cursor back below it."""
        self._closing.set()
        self._ticker.join()
        self.draw()
        self._area.close()

    def _tick(self) -> None:
        while not self._closing.wait(REDRAW_SECONDS):
            self.draw()


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
        # A tab would leave what stood there.
        news = [] if above is None else above.expandtabs().split("\n")
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
