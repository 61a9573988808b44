"""Moments of a command at which a round breaks it."""

from dataclasses import dataclass

# Targets of a kill: a uniformly drawn moment almost never falls into a write.
WRITES = ("checkpoint", "network", "event log")
DECODING = "decoding"


@dataclass(frozen=True)
class Moment:
    """A moment of a command: `epoch` recorded epochs, `seconds` later, then the next `write`.

    `epoch` 0 is the command's start. `write` is None, DECODING or a name in WRITES.
    """

    epoch: int
    seconds: float
    write: str | None = None

    def __str__(self) -> str:
        after = f"epoch {self.epoch}" if self.epoch else "the start"
        at = f", as the {self.write} is written" if self.write else ""
        return f"{self.seconds:.1f} s after {after}{at}"
