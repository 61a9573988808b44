"""Results of a sweep, read from its event log without a tracking server."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from mtcon_ray.base import paths
from mtcon_ray.base.metrics import LOSS, Labels, objective
from mtcon_ray.base.status import Status
from mtcon_ray.errors import MtconError, SweepError
from mtcon_ray.plan.plan import Plan, read_plan
from mtcon_ray.records.event_log import by_trial, first_event, read_events
from mtcon_ray.records.events import Ended, Event, Reported, Started, last_change
from mtcon_ray.records.lost import lost_in
from mtcon_ray.records.recorded import load_recorded, read_recorded
from mtcon_ray.spec.evaluate import Select, selected_epoch
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec, with_values
from mtcon_ray.spec.space import with_lists

if TYPE_CHECKING:
    from pandas import DataFrame

# Tags: of a sweep begun by a job of `mtcon-ray submit`, and of the executor, HERE without Ray.
JOB, EXECUTOR, HERE = "mtcon.job", "mtcon.executor", "here"

Report = tuple[int, dict[str, float]]


@dataclass(frozen=True, repr=False)
class TrialResult:
    """A trial. `epochs` is its own budget, `reports` holds (epoch, metrics) of each epoch.

    `select` is the spec's `evaluate.select`, the rule to select the epoch of the network. `seconds`
    is the time of training and evaluation, without the time at rungs or between two drivers.
    `may_end_early` is True if a plateau can end it before its last epoch (`train.patience`).
    """

    name: str
    number: int
    params: dict[str, Any]
    status: Status
    reason: str | None
    epochs: int
    seed: int
    reports: tuple[Report, ...]
    select: Select = "last"
    seconds: float = 0.0
    may_end_early: bool = False

    def __repr__(self) -> str:
        done, value = f"epoch {self.last_epoch} of {self.epochs}", f"value {self.value}"
        return f"<{self.name}: {self.status.words}, {done}, {value}, {self.params}>"

    @property
    def last_epoch(self) -> int:
        """The last epoch completed, 0 before the first."""
        return self.reports[-1][0] if self.reports else 0

    @property
    def last_metrics(self) -> dict[str, float]:
        """Metrics of the last completed epoch, with test scores at the end. {} before epoch 1."""
        return self.reports[-1][1] if self.reports else {}

    @cached_property
    def value(self) -> float | None:
        """The objective of the selected network, a fraction, or None if it is not finite."""
        value = objective(dict(self.reports).get(self.model_epoch or 0, {}))
        return value if value is not None and math.isfinite(value) else None

    @cached_property
    def model_epoch(self) -> int | None:
        """Epoch of the selected network, which is in model.pt, or None before the first probe."""
        return selected_epoch(objective_values(self.reports), self.select)

    @cached_property
    def full_budget(self) -> bool:
        """True if it trained to its end and has a value. Only such a trial can win.

        The end is its last epoch, or with `train.patience` a plateau.
        """
        done = self.last_epoch >= self.epochs and self.status != Status.FAILED
        at_plateau = self.may_end_early and self.status == Status.FINISHED
        return (done or at_plateau) and self.value is not None

    @cached_property
    def configuration(self) -> str:
        """The searched values as text, equal for trials that differ only in their seeds."""
        return json.dumps(self.params, sort_keys=True)

    @property
    def probe_values(self) -> dict[str, float]:
        """Metrics of the epoch of the trial's value, {} without a value."""
        return dict(self.reports).get(self.model_epoch or 0, {}) if self.value is not None else {}


@dataclass(frozen=True)
class Configuration:
    """A set of searched values with its trials, which differ in their seeds."""

    params: dict[str, Any]
    trials: tuple[TrialResult, ...]

    @property
    def value(self) -> float:
        """Returns the mean validation score over the configuration's seeds, a fraction."""
        return fmean(t.value for t in self.trials if t.value is not None)

    @property
    def spread(self) -> float | None:
        """Returns the standard deviation over seeds, None with fewer than two seeds."""
        values = [t.value for t in self.trials if t.value is not None]
        return stdev(values) if len(values) > 1 else None


def by_configuration(trials: Iterable[TrialResult]) -> list[Configuration]:
    """Groups trials by configuration, in the order of the trials."""
    seeds: dict[str, list[TrialResult]] = {}
    for trial in trials:
        seeds.setdefault(trial.configuration, []).append(trial)
    return [Configuration(found[0].params, tuple(found)) for found in seeds.values()]


@dataclass(frozen=True, repr=False)
class SweepResults:
    """All trials of a sweep, by number. `lost` lists the gaps in its event log.

    `events` are the sweep's own events, without the events of trials.
    """

    name: str
    folder: Path
    spec: RunSpec
    plan: Plan | None
    trials: tuple[TrialResult, ...]
    lost: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()

    def __repr__(self) -> str:
        done = f"{len(self.trials)} of {self.num_trials} trials started"
        return f"<{self.name}: {done}, winner {self.winner}>"

    def _repr_html_(self) -> str:
        """Returns the table of a notebook: the columns of `to_frame` up to the searched fields."""
        frame = self.to_frame().iloc[:, : 7 + len(self.spec.search.space)]
        return str(frame.to_html(index=False, float_format="{:.4g}".format))

    @property
    def labels(self) -> Labels:
        """The label columns and their kinds, which for a plugin's data only the plan knows."""
        labels = self.spec.labels
        return labels._replace(kinds={**labels.kinds, **(self.plan.kinds if self.plan else {})})

    @property
    def status(self) -> tuple[Status, str | None]:
        """Status of the sweep itself, and the reason if it has ended early."""
        return trial_status(self.events)

    @property
    def num_trials(self) -> int:
        """The number of planned trials, or of begun trials if no plan was recorded."""
        return self.plan.num_trials if self.plan else len(self.trials)

    @property
    def plan_warnings(self) -> tuple[str, ...]:
        """The plan's warnings."""
        return self.plan.warnings if self.plan else ()

    def ranked(self) -> tuple[TrialResult, ...]:
        """Ranks the trials: full budget by value, pruned by last value, unfinished, failed."""

        def key(trial: TrialResult) -> tuple[int, float, int]:
            # A finished trial without a finite value ranks with the unfinished trials.
            rank = 0 if trial.full_budget else trial.status.rank or Status.RUNNING.rank
            return rank, math.inf if trial.value is None else -trial.value, trial.number

        return tuple(sorted(self.trials, key=key))

    def folder_of(self, trial: TrialResult) -> Path:
        """Returns the folder of a trial's network and predictions."""
        return paths.checkpoint_folder(self.folder, trial.name)

    def predictions_of(self, trial: TrialResult) -> Path:
        """Returns the path of the predictions behind a trial's test scores."""
        return self.folder_of(trial) / paths.PREDICTIONS_FILE

    @cached_property
    def winner(self) -> TrialResult | None:
        """The best trial with its full budget, or None without such a trial.

        If trials are repeated, it is the best seed of the configuration with the best mean. If any
        configuration has all its seeds, configurations with seeds stopped early or failed do not
        count, because the mean of the remaining seeds would be too high.
        """
        return next((each.trials[0] for each in self.configurations()), None)

    def configurations(self) -> list[Configuration]:
        """Returns the configurations with their full-budget trials, the winner's first.

        Configurations with all seeds come first, by mean value, then incomplete configurations.
        """
        found = by_configuration(trial for trial in self.ranked() if trial.full_budget)
        return sorted(found, key=lambda c: (len(c.trials) < self.spec.search.repeats, -c.value))

    @property
    def is_complete(self) -> bool:
        """True if no planned trial needs more training. A trial without events counts as ended."""
        after_last = self.trials[-1].number + 1 if self.trials else 0
        is_final = all(trial.status.is_final for trial in self.trials)
        return is_final and after_last >= self.spec.search.num_planned_trials

    def required_winner(self) -> TrialResult:
        """Returns the winner. Raises MtconError without a winner."""
        if self.winner is None:
            raise MtconError(f"no trial of {self.name!r} has trained for its full budget yet")
        return self.winner

    def winner_spec(self, overrides: Iterable[str] = ()) -> RunSpec:
        """Returns the spec of a training with the values and the seed of the winner.

        `overrides` such as data.fraction=1 are applied last. Imports the spec's plugins. Raises
        MtconError without a winner, SpecError if the spec is invalid or without consent to plugins.
        """
        winner, search = self.required_winner(), {"objective": self.spec.search.objective}
        path = self.folder / paths.SPEC_FILE
        own = {"seed": winner.seed, "search": search}
        raw = dump_spec(with_values(load_recorded(path), winner.params | own))
        return parse_spec(raw, overrides, where=str(path))

    @property
    def report_path(self) -> Path:
        """The page of the report, which exists once the sweep has ended."""
        return self.folder / paths.REPORT_PAGE

    def to_frame(self) -> "DataFrame":
        """Returns a table with a row per trial, best first.

        Columns: trial, state, seed, epochs (its budget), epoch (its last), value, seconds, then the
        searched fields by path, then the metrics of the last epoch.
        """
        columns = ["trial", "state", "seed", "epochs", "epoch", "value", "seconds"]

        def row(t: TrialResult) -> dict[str, Any]:
            own = t.name, t.status.words, t.seed, t.epochs, t.last_epoch, t.value, t.seconds
            found = dict(sorted(t.last_metrics.items()))
            return {**dict(zip(columns, own, strict=True)), **t.params, **found}

        return _frame(map(row, self.ranked()), columns)

    def history(self) -> "DataFrame":
        """Returns a table with a row per trial and epoch: trial, epoch, and all metrics."""
        each = ((trial.name, report) for trial in self.trials for report in trial.reports)
        rows = ({"trial": name, "epoch": epoch, **found} for name, (epoch, found) in each)
        return _frame(rows, ["trial", "epoch", LOSS])


def _frame(rows: Iterable[dict[str, Any]], columns: list[str]) -> "DataFrame":
    from pandas import DataFrame

    return DataFrame(found) if (found := [*rows]) else DataFrame(columns=columns)


def load_sweep(folder: Path) -> SweepResults:
    """Returns the results so far of the sweep in a folder, running or not.

    Raises SweepError if there is none.
    """
    path = folder / paths.SPEC_FILE
    if not path.exists():
        raise SweepError(f"{folder} has no spec.yaml of a sweep; `mtcon-ray list` names the sweeps")
    plan, spec = read_plan(folder / paths.PLAN_FILE), read_recorded(path)
    groups = by_trial(read_events(paths.event_file(folder)))
    own = groups.pop(None, [])
    trials = sorted((trial_of(each, spec) for each in groups.values()), key=lambda t: t.number)
    lost = lost_in(folder, trials, has_ended=trial_status(own)[0] is Status.FINISHED)
    return SweepResults(folder.name, folder, spec, plan, tuple(trials), tuple(lost), tuple(own))


def trial_of(events: list[Event], spec: RunSpec) -> TrialResult:
    """Returns the trial with these events. Raises SweepError if the first is not a whole start."""
    (start, epochs, seed), name = started(events), str(events[0].trial)
    reported = [event for event in events if isinstance(event, Reported)]
    reports = tuple((event.epoch, dict(event.metrics)) for event in reported)
    seconds = sum(event.seconds or 0.0 for event in reported)
    params = with_lists(spec.search.space, start.params)
    of = name, paths.trial_number(name), params, *trial_status(events), epochs, seed
    return TrialResult(*of, reports, spec.evaluate.select, seconds, spec.may_end_early)


def started(events: Sequence[Event]) -> tuple[Started, int, int]:
    """Returns the first event of a trial, with its epochs and its seed.

    Raises SweepError unless it is a start with both.
    """
    start = events[0]
    with suppress(KeyError, ValueError):
        if isinstance(start, Started):
            return start, int(start.tags["mtcon.epochs"]), int(start.tags["mtcon.seed"])
    lacking = f"{start.trial} does not begin with a start that has its epochs and seed"
    cure = "restore the log, or remove the lines of this trial and lose its metrics"
    raise SweepError(f"the event log is damaged: {lacking}; {cure}")


def objective_values(reports: Iterable[Report]) -> dict[int, float]:
    """Returns the objective by epoch, for the epochs with a probe."""
    probed = {epoch: objective(metrics) for epoch, metrics in reports}
    return {epoch: value for epoch, value in probed.items() if value is not None}


def first_tags(folder: Path) -> Mapping[str, str]:
    """Returns the tags of the start of the sweep in a folder, such as JOB and EXECUTOR."""
    begun = first_event(paths.event_file(folder))
    return begun.tags if begun else {}


def trial_status(events: Sequence[Event]) -> tuple[Status, str | None]:
    """Returns status and reason after the last change of the status of a trial or sweep."""
    last = last_change(events)
    if not isinstance(last, Ended):
        return Status.RUNNING, None
    reason = last.tags.get("mtcon.reason")
    if last.status in (Status.FINISHED, Status.FAILED):
        return Status(last.status), reason
    # Pruned and interrupted trials have the same MLflow status.
    pruned = last.tags.get("mtcon.pruned") == "true"
    return (Status.PRUNED if pruned else Status.INTERRUPTED), reason
