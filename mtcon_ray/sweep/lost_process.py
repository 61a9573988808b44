"""The reason for the loss of a trial's process, as a single line."""

import re

MAX_REASON = 500
ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
# Beginning of a line like "\tactor_id: 4f2a" in Ray's message about a lost process.
IDENTIFIER = re.compile(r"\s+[a-z_]+: ")


def last_error(text: str) -> str:
    r"""Returns the last failure in Tune's error file, as a single line.

    >>> last_error("Failure # 1 (occurred at noon)\nTraceback:\n  f()\nKeyError: 'x'\n")
    "KeyError: 'x'"
    """
    return error_in(text.rpartition("Failure # ")[2].partition("\n")[2])


def error_in(text: str) -> str:
    r"""Returns a trace of Python, or Ray's message about a lost process, as a single line.

    Of a Python error this is the line with its type, even if more lines follow. Ray's lines with
    the numbers and addresses of the process are left out.

    >>> error_in("Traceback:\n  f()\nKeyError: 'x'\n")
    "KeyError: 'x'"
    >>> error_in("The actor died.\n\tclass_name: Worker\n\tpid: 7\nIts node has died.")
    'The actor died. Its node has died.'
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if ERROR_LINE.match(line)]
    if named:
        return named[-1][:MAX_REASON]
    told = (line.strip() for line in lines if not IDENTIFIER.match(line))
    return " ".join(told)[:MAX_REASON] or "its process was lost"
