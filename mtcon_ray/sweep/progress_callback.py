"""Tune's callback that reports progress and the errors of trials."""

import re
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from mtcon_ray.base.callbacks import Callbacks

MAX_REASON = 500
ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
# Beginning of a line like "\tactor_id: 4f2a" in Ray's message about a lost process.
IDENTIFIER = re.compile(r"\s+[a-z_]+: ")


class ProgressCallback(Callback):
    """Forwards each result of a trial to the callbacks."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._observer = callbacks
        self._trials: list[Trial] = []

    def error_of(self, name: str) -> str | None:
        """Returns the last error of a trial as a single line, or None without an error.

        Tune writes the error file before it calls the searcher with the failure.
        """
        found = (t.error_file for t in reversed(self._trials) if t.config.get("trial") == name)
        file = next(found, None)
        if not file or not Path(file).exists():
            return None
        return last_error(Path(file).read_text(encoding="utf-8", errors="replace"))

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Keeps Tune's own list, which also has trials without a started process."""
        self._trials = trials

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        """Pickles as an empty Callback, because Tune saves its callbacks but never loads them.

        Our callbacks may not be picklable.
        """
        return Callback, ()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Forwards a validation probe or the end of a trial."""
        if "note" in result:
            self._observer.on_note(result["note"])
        if "epoch" in result:
            epochs = round(100 * result["epoch"] / result["budget"])
            self._observer.on_report(
                trial.config["trial"], result["epoch"], epochs, dict(result["metrics"])
            )


def last_error(text: str) -> str:
    r"""Returns the last failure in Tune's error file, as a single line.

    For a Python error this is the line with its type, even if more lines follow. For a lost process
    it is Ray's message.

    >>> last_error("Failure # 1 (occurred at noon)\nTraceback:\n  f()\nKeyError: 'x'\n")
    "KeyError: 'x'"
    """
    return error_in(text.rpartition("Failure # ")[2].partition("\n")[2])


def error_in(text: str) -> str:
    r"""Returns a trace of Python, or Ray's message about a lost process, as a single line.

    Ray's lines with the numbers and addresses of the process are left out.

    >>> error_in("The actor died.\n\tclass_name: Worker\n\tpid: 7\nIts node has died.")
    'The actor died. Its node has died.'
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if ERROR_LINE.match(line)]
    if named:
        return named[-1][:MAX_REASON]
    told = (line.strip() for line in lines if not IDENTIFIER.match(line))
    return " ".join(told)[:MAX_REASON] or "its process was lost"
