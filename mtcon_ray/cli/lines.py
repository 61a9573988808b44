"""A sweep's events as lines of text, and such lines as events again.

Logs hold these lines; what follows a job reads them, so a change here changes both.
"""

import json
import math
import re
from collections.abc import Callable

from mtcon_ray.cli.drawing import STATES
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
)
from mtcon_ray.cli.text import UNITS, accuracy, duration, size
from mtcon_ray.metrics import MEAN_ACCURACY, MEAN_SCORE

STAMP = re.compile(r"\[ *(?:(\d+):)?(\d+):(\d\d)\] (.*)")
OBJECTIVE = f"({MEAN_ACCURACY}|{MEAN_SCORE})"
NUMBER = r"(-?\d+\.\d+|nan|-?inf)"
SIZE = rf"([\d.]+) ({'|'.join(UNITS)})"
STATUS = {text: status for status, text in STATES.items()}


def stamped(seconds: float, text: str) -> str:
    """The text behind the sweep's time, in seconds since it began.

    >>> stamped(75, "starting")
    '[ 1:15] starting'
    """
    return f"[{duration(seconds):>5}] {text}"


def unstamped(line: str) -> tuple[float, str] | None:
    """Seconds and text of such a line, None of any other.

    >>> unstamped("[1:02:05] starting")
    (3725.0, 'starting')
    """
    found = STAMP.fullmatch(line)
    if not found:
        return None
    hours, minutes, seconds, text = found.groups()
    return 3600.0 * int(hours or 0) + 60 * int(minutes) + int(seconds), text


def written(event: Event) -> str:
    """The event in a line, as people read it."""
    match event:
        case Starting():
            return "starting"
        case Preparing(what):
            return f"preparing: {what}"
        case Downloading(done, total):
            return f"downloaded {size(done)} of {size(total)}"
        case Decoding(done, total):
            return f"decoded {done}/{total} images"
        case Start(name, num_trials, epochs, few, folder, objective, select):
            by = "" if objective == MEAN_ACCURACY else f", by {objective}"
            by += ", of each its best epoch" if select == "best" else ""
            at_a_time = f", {few} at a time" if few else ""
            trials = f"{num_trials} trial{'s' * (num_trials > 1)}"
            return f"{name}: {trials} of {epochs} epochs{at_a_time}{by}, in {folder}"
        case Suggest(trial, configuration, own):
            epochs_of_its_own = f", {own} epochs" if own else ""
            return f"{trial} started{epochs_of_its_own}: {configuration}"
        case Known():
            return _known_line(event)
        case Report():
            return _report_line(event)
        case End():
            return _end_line(event)
        case Close():
            return _close_line(event)


def read(text: str) -> Event | None:
    """The event that `written` made this line of, None of any other line.

    Numbers have the digits that people are shown.
    """
    for pattern, event in FORMS:
        found = pattern.fullmatch(text)
        if found:
            return event(*found.groups())
    return None


def _known_line(event: Known) -> str:
    # In quotation marks, for reason and configuration may both hold anything.
    why = f" ({json.dumps(event.reason, ensure_ascii=False)})" if event.reason else ""
    value = "" if event.value is None else f", {event.objective} {accuracy(event.value)}"
    stands = f"{STATES[event.status]} at epoch {event.epoch}/{event.epochs}{why}{value}"
    return f"{event.trial} restored, {stands}: {event.configuration}"


def _report_line(event: Report) -> str:
    value = [] if event.value is None else [f"{event.objective} {accuracy(event.value)}"]
    loss = [] if event.loss is None else [f"loss {event.loss:.3f}"]
    news = ", ".join([*value, *loss])
    return f"{event.trial} epoch {event.epoch}/{event.epochs}{': ' * bool(news)}{news}"


def _end_line(event: End) -> str:
    after = f" after epoch {event.after[0]}/{event.after[1]}" if event.after else ""
    why = f" ({event.reason})" if event.reason else ""
    value = "" if event.value is None else f", {event.objective} {accuracy(event.value)}"
    return f"{event.trial} {STATES[event.status]}{after}{why}{value}; {event.standing}"


def _close_line(event: Close) -> str:
    configuration = f" ({event.configuration})" if event.configuration else ""
    value = f", {event.objective} {accuracy(event.value)}{configuration}"
    best = f"; best {event.best}{value}" if event.best else ""
    return f"{event.name} ended: {event.done}/{event.num_trials} done{best}"


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * math.pow(1000, UNITS.index(unit)))


def _read_end(
    trial: str, state: str, epoch: str | None, epochs: str | None, reason: str | None,
    objective: str | None, value: str | None, standing: str,
) -> End:  # fmt: skip
    after = (int(epoch), int(epochs)) if epoch and epochs else None
    name = objective or MEAN_ACCURACY
    return End(trial, STATUS[state], after, _number(value), reason, standing, name)


def _read_known(
    trial: str, state: str, epoch: str, epochs: str, reason: str | None, objective: str | None,
    value: str | None, configuration: str,
) -> Known:  # fmt: skip
    why = json.loads(reason) if reason else None
    return Known(
        trial, configuration, STATUS[state], int(epoch), int(epochs), _number(value), why,
        objective or MEAN_ACCURACY,
    )  # fmt: skip


_forms: tuple[tuple[str, Callable[..., Event]], ...] = (
    ("starting", Starting),
    (r"preparing: (.+)", Preparing),
    (
        rf"downloaded {SIZE} of {SIZE}",
        lambda done, unit, total, of: Downloading(_bytes(done, unit), _bytes(total, of)),
    ),
    (r"decoded (\d+)/(\d+) images", lambda done, total: Decoding(int(done), int(total))),
    (
        r"(\S+): (\d+) trials? of (\d+) epochs(?:, (\d+) at a time)?"
        rf"(?:, by {OBJECTIVE})?(, of each its best epoch)?, in (.+)",
        lambda name, trials, epochs, few, objective, best, folder: Start(
            name,
            int(trials),
            int(epochs),
            int(few) if few else None,
            folder,
            objective or MEAN_ACCURACY,
            "best" if best else "last",
        ),
    ),
    (
        r"(\S+) started(?:, (\d+) epochs)?: (.*)",
        lambda trial, own, text: Suggest(trial, text, int(own) if own else None),
    ),
    (
        rf"(\S+) restored, ({'|'.join(STATUS)}) at epoch (\d+)/(\d+)"
        rf'(?: \(("(?:[^"\\]|\\.)*")\))?(?:, {OBJECTIVE} {NUMBER})?: (.*)',
        _read_known,
    ),
    (
        rf"(\S+) epoch (\d+)/(\d+)(?:: {OBJECTIVE} {NUMBER})?(?:[:,] loss {NUMBER})?",
        lambda trial, epoch, epochs, objective, value, loss: Report(
            trial,
            int(epoch),
            int(epochs),
            _number(value),
            _number(loss),
            objective or MEAN_ACCURACY,
        ),
    ),
    (
        # The reason may hold anything: it goes to the last bracket before the numbers.
        rf"(\S+) ({'|'.join(STATUS)})(?: after epoch (\d+)/(\d+))?(?: \((.*)\))?"
        rf"(?:, {OBJECTIVE} {NUMBER})?; (\d+/\d+ done.*)",
        _read_end,
    ),
    (
        rf"(\S+) ended: (\d+)/(\d+) done(?:; best (\S+), {OBJECTIVE} {NUMBER}(?: \((.*)\))?)?",
        lambda name, done, trials, best, objective, value, text: Close(
            name, int(done), int(trials), best, _number(value), text, objective or MEAN_ACCURACY
        ),
    ),
)
FORMS = [(re.compile(pattern), event) for pattern, event in _forms]
