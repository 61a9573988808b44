"""What happens in a sweep, as whoever watches it is told; texts are of one line each."""

from typing import NamedTuple

from mtcon_ray.evaluation.spec import Select
from mtcon_ray.metrics import MEAN_ACCURACY


class Starting(NamedTuple):
    """A command begins; nothing else is known yet."""


class Preparing(NamedTuple):
    """A long preparation of a sweep begins, as "connecting to Ray"."""

    what: str


class Downloading(NamedTuple):
    """Bytes of data that are there, of how many."""

    done: int
    total: int


class Decoding(NamedTuple):
    """Images that are decoded, of how many."""

    done: int
    total: int


class Start(NamedTuple):
    """A sweep begins; `concurrency` is None where it says nothing.

    Here and below `objective` is the name of the trials' values; `select` says of which epoch.
    """

    name: str
    num_trials: int
    epochs: int
    concurrency: int | None
    folder: str
    objective: str = MEAN_ACCURACY
    select: Select = "last"


class Suggest(NamedTuple):
    """A trial begins, or goes on; `epochs` is None where they are the sweep's."""

    trial: str
    configuration: str
    epochs: int | None = None


class Known(NamedTuple):
    """A trial of a resumed sweep as it stands; `status` may be any but RUNNING."""

    trial: str
    configuration: str
    status: str
    epoch: int
    epochs: int
    value: float | None = None
    reason: str | None = None
    objective: str = MEAN_ACCURACY


class Report(NamedTuple):
    """A trial has completed an epoch; `value` is None where it was not evaluated."""

    trial: str
    epoch: int
    epochs: int
    value: float | None = None
    loss: float | None = None
    objective: str = MEAN_ACCURACY


class End(NamedTuple):
    """A trial is over, for now or for good.

    `after` is the epoch that it came to, and of how many; None where it has all, or none.
    `standing` says how the sweep stands then.
    """

    trial: str
    status: str
    after: tuple[int, int] | None = None
    value: float | None = None
    reason: str | None = None
    standing: str = ""
    objective: str = MEAN_ACCURACY


class Close(NamedTuple):
    """A sweep is over; `best` is its leading trial, where there are several."""

    name: str
    done: int
    num_trials: int
    best: str | None = None
    value: float | None = None
    configuration: str | None = None
    objective: str = MEAN_ACCURACY


Event = (
    Starting | Preparing | Downloading | Decoding | Start | Suggest | Known | Report | End | Close
)


def one_line(text: str) -> str:
    """The text with its line ends as slashes.

    >>> one_line("RuntimeError: NCCL\\n  unhandled error")
    'RuntimeError: NCCL / unhandled error'
    """
    return " / ".join(line.strip() for line in text.splitlines())
