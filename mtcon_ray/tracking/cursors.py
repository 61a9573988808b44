"""The sent part of each event log, as a sender saves it on disk."""

import json
from pathlib import Path

from mtcon_ray.base.paths import cursors_file, event_folder, is_trial, parent_log, trial_logs
from mtcon_ray.base.root_files import read_small, remove
from mtcon_ray.records.event_log import ends_line, num_events

# Errors of reading a file with arbitrary content.
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def saved(folder: Path) -> tuple[str, dict[str, int]]:
    """Returns a sender's saved state: its server's digest, and its positions by log.

    A missing or damaged file means: nothing was sent. Sending events again is harmless, but
    skipping unsent events would lose them. So a log is also sent again if it was cut before the
    position, to remove a damaged line.
    """
    spool = event_folder(folder)
    try:
        state = json.loads(read_small(cursors_file(folder)))
        offsets = state["offsets"].items()
        known = [(n, end) for n, end in offsets if n == parent_log(folder).stem or is_trial(n)]
        whole = {n: end for n, end in known if ends_line(spool / f"{n}.jsonl", end)}
        return str(state["place"]), whole
    except DAMAGED:
        return "", {}


def grown(folder: Path, offsets: dict[str, int]) -> list[Path]:
    """Returns the event logs with unsent bytes."""
    paths = [parent_log(folder), *trial_logs(folder)]
    return [p for p in paths if p.exists() and p.stat().st_size > offsets.get(p.stem, 0)]


def num_left(folder: Path, offsets: dict[str, int]) -> int:
    """Returns the number of events after the sent parts of all event logs."""
    return sum(num_events(path, offsets.get(path.stem, 0)) for path in grown(folder, offsets))


def num_unsent(folder: Path) -> int:
    """Returns the number of events missing on the last tracking server of a folder."""
    return num_left(folder, saved(folder)[1])


def forget_sent(folder: Path) -> None:
    """Makes the next sender of a folder send all its events again, without duplicates."""
    remove(cursors_file(folder))
