"""Every error that a user can meet, in one tree.

    MtconError                     exit code 1: not the user's fault
    ├── UserError                  exit code 2: something the user wrote or pointed at
    │   ├── SpecError              a field, a path of the search space, an override
    │   ├── DataError              a CSV, an image, a label column, a split
    │   ├── ResourceError          more than any node, disk or permission can give
    │   ├── SweepError             a sweep or run that exists, is missing, locked or differs
    │   └── CheckpointError        a checkpoint that is broken or of another architecture
    ├── TrackingError              the tracking server does not answer
    └── TrialError                 ends one trial, never the sweep
        ├── DivergedError          a gradient, a loss or an embedding is not finite
        └── OutOfMemoryError       the configuration does not fit the device

A message says what, where, the rule, the value, and the way out. Bugs of ours are
`AssertionError` and keep their trace.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class MtconError(Exception):
    """Base of all errors below; `exit_code` is what a command ends with."""

    exit_code = 1


class UserError(MtconError):
    """The user can mend it: nothing was started, nothing is left half written."""

    exit_code = 2


class SpecError(UserError):
    """A spec, an override or a search space that breaks a rule."""


class DataError(UserError):
    """Labels or images that cannot be used as the spec says."""


class ResourceError(UserError):
    """A request that no node, disk or permission can satisfy."""


class SweepError(UserError):
    """A sweep or run whose name is taken, missing, locked, or whose spec differs."""


class CheckpointError(UserError):
    """A checkpoint that cannot be read or that belongs to another architecture."""


class TrackingError(MtconError):
    """The tracking server gives no answer."""


class TrialError(MtconError):
    """Ends one trial; the sweep records the reason and goes on."""


class DivergedError(TrialError):
    """A gradient or loss is not finite; raised before a parameter changes."""


class OutOfMemoryError(TrialError):
    """The device has too little memory for this configuration."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A closing sentence for an unknown name: the nearest known ones, or all of them.

    >>> nearest("tempertaure", ["temperature", "weighting"])
    "; did you mean 'temperature'?"
    >>> nearest("x", ["b", "a"])
    '; known: a, b'
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
