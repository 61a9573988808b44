"""Rounds of fault injection: their plan from a seed, their record on disk, and the table."""

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from benchmarks.table import markdown

RECORD = "rounds.jsonl"
HEADER = (
    "broken",
    "rounds",
    "passed",
    "trials lost",
    "metrics lost",
    "epochs trained twice",
    "seconds to recover: median",
    "worst",
    "at most",
)


@dataclass(frozen=True)
class Round:
    """A round with three fields, which determine all its random choices."""

    kind: str
    number: int
    seed: int

    @property
    def name(self) -> str:
        """The name of the round's folder."""
        return f"{self.kind}-{self.seed}-{self.number}"

    def random(self) -> Random:
        """Returns a new generator of the round's moments and choices."""
        return Random(f"{self.seed} {self.kind} {self.number}")


@dataclass
class Outcome:
    """The result of a round.

    `through` is the job, `moments` are the times and kinds of the faults. `lost_trials` and
    `lost_metrics` count the undisturbed run's records that are missing at the end. `epochs_twice`
    counts completed epochs that were trained again. `seconds_to_recover` lasts until each trial has
    another epoch, or until the command ends if no epoch was left. `measured` has further
    measurements of a kind. `problems` is empty if all checks have passed.
    """

    through: str = ""
    moments: list[str] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    lost_trials: int = 0
    lost_metrics: int = 0
    epochs_twice: int = 0
    seconds_to_recover: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """True if all checks have passed."""
        return not self.problems


Break = Callable[[Round, Outcome], None]


def planned(kinds: Iterable[str], num_rounds: int, seed: int) -> Iterator[Round]:
    """Yields the rounds kind by kind in the given order."""
    for kind in kinds:
        for number in range(num_rounds):
            yield Round(kind, number, seed)


def recorded(folder: Path) -> list[tuple[Round, Outcome]]:
    """Returns the rounds in the folder's record, without a last line cut by a kill."""
    path = folder / RECORD
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    found = []
    for line in filter(None, lines):
        values = json.loads(line)
        round_ = Round(values.pop("kind"), values.pop("number"), values.pop("seed"))
        for shown in ("passed", "commit"):
            values.pop(shown, None)
        found.append((round_, Outcome(**values)))
    return found


def record(folder: Path, round_: Round, outcome: Outcome, commit: str = "") -> None:
    """Appends a round's line, after removing a last line cut by a kill."""
    line = {**asdict(round_), "passed": outcome.passed, "commit": commit, **asdict(outcome)}
    path = folder / RECORD
    folder.mkdir(parents=True, exist_ok=True)
    whole = path.read_text(encoding="utf-8") if path.exists() else ""
    if whole and not whole.endswith("\n"):
        path.write_text(whole[: whole.rfind("\n") + 1], encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run_missing(
    folder: Path,
    rounds: Iterable[Round],
    breaks: Mapping[str, Break],
    *,
    commit: str = "",
    show: Callable[[str], None] = print,
) -> bool:
    """Runs and records the rounds missing in the record. Returns False if a round failed.

    An error of the round itself counts as a failure, because it may hide the fault's effect.
    """
    done = {each for each, _ in recorded(folder)}
    is_good = True
    for round_ in rounds:
        if round_ in done:
            continue
        outcome, begin = Outcome(), perf_counter()
        try:
            breaks[round_.kind](round_, outcome)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            outcome.problems.append(f"{type(error).__name__} at {where}: {error}"[:2000])
        outcome.seconds = round(perf_counter() - begin, 1)
        record(folder, round_, outcome, commit)
        is_good &= outcome.passed
        show(line_of(round_, outcome))
    return is_good


def line_of(round_: Round, outcome: Outcome) -> str:
    """Returns a round as a line of text."""
    said = "passed" if outcome.passed else f"FAILED: {'; '.join(outcome.problems)}"
    moments = ", ".join(outcome.moments)
    return f"{round_.name}, {outcome.through}: {moments}: {said} ({outcome.seconds:.0f} s)"


def table(found: Sequence[tuple[Round, Outcome]], order: Sequence[str]) -> str:
    """Returns the Markdown table of recorded rounds, a row per kind and job."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for round_, outcome in found:
        groups.setdefault((round_.kind, outcome.through), []).append(outcome)
    known = {kind: place for place, kind in enumerate(order)}
    rows = []
    for kind, through in sorted(groups, key=lambda g: (known.get(g[0], len(known)), *g)):
        outcomes = groups[kind, through]
        seconds = [s for each in outcomes for s in each.seconds_to_recover]
        rows.append(
            [
                f"{kind}, {through}" if through else kind,
                str(len(outcomes)),
                str(sum(each.passed for each in outcomes)),
                str(sum(each.lost_trials for each in outcomes)),
                str(sum(each.lost_metrics for each in outcomes)),
                str(sum(each.epochs_twice for each in outcomes)),
                f"{median(seconds):.0f}" if seconds else "",
                f"{max(seconds):.0f}" if seconds else "",
                _largest(outcomes),
            ]
        )
    return markdown(HEADER, rows)


def _largest(outcomes: Iterable[Outcome]) -> str:
    """Returns the largest of each further measurement."""
    largest: dict[str, float] = {}
    for outcome in outcomes:
        for name, value in outcome.measured.items():
            largest[name] = max(value, largest.get(name, value))
    return ", ".join(f"{value:.3g} {name}" for name, value in largest.items())
