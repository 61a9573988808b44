"""Up to 10,000 trials: the driver, the sampler, the sender, and commands on the record.

`scale` prints this table. Each row runs in a process of its own, because a peak of memory is of a
process. The driver gets its epochs from a loop in its process, and trains nothing. The commands
read a made-up sweep with a real event log.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep, thread_time
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks import idle_trial, many_nodes
from benchmarks.many_records import list_row, reading_rows
from benchmarks.mlflow_server import mlflow_server
from benchmarks.pretended import (
    EPOCHS,
    NAME,
    Rows,
    alone,
    events_of,
    line_of,
    plan_of,
    sweep_spec,
    write_beginning,
)
from benchmarks.table import markdown
from benchmarks.timing import most_resident_bytes
from benchmarks.tracking import TimedSender
from mtcon_ray.base import paths
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Started
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.here import take
from mtcon_ray.sweep.record import SweepRecord, Trial
from mtcon_ray.sweep.suggester import Suggester
from mtcon_ray.tracking import lifecycle
from mtcon_ray.tracking.mlflow_server import own_database
from mtcon_ray.tracking.sender import Sender

ROUNDS = 3
SENT_RUNS, SENT_EPOCHS = 20, 20


@dataclass(frozen=True)
class Sizes:
    """The numbers of trials of the rows, and of the sweeps for `list`."""

    driven: int = 10_000
    at_a_time: int = 512
    with_tpe: int = 1_000
    recorded: tuple[int, ...] = (1_000, 10_000)
    suggestion: int = 10_000
    sweeps: int = 300
    nodes: tuple[int, int, int] = (16, 64, 4)  # nodes, trials, and nodes lost at once
    most_nodes: int = 64
    rounds: int = ROUNDS


def measure(sizes: Sizes = Sizes()) -> str:
    """Returns the table of all rows. Takes half an hour."""
    rows = [
        *alone(driver_rows, sizes.driven, sizes.at_a_time),
        *alone(tpe_rows, sizes.with_tpe, sizes.at_a_time),
        *alone(suggestion_rows, sizes.suggestion),
        *(row for number in sizes.recorded for row in reading_rows(number, sizes.rounds)),
        list_row(sizes.sweeps, sizes.rounds),
        *alone(sender_rows, sizes.rounds),
        *alone(many_nodes.loss_rows, *sizes.nodes),
        *alone(many_nodes.most_rows, sizes.most_nodes),
    ]
    return markdown(("Many trials", "measured", "aim"), rows)


class Driven(NamedTuple):
    """Costs of a driver: wall seconds of its calls, and their processor time.

    `suggestions` is the processor time of suggestions with their starts, and part of `cpu`.
    """

    reports: int
    seconds: float
    cpu: float
    suggestions: float
    sender: float
    total: float  # wall seconds, with the trials' own work


def drive(spec: RunSpec, root: Path, at_a_time: int) -> Driven:
    """Runs a driver with pretended trials to the end of its sweep. Asserts the end of all."""
    folder = paths.sweep_folder(root, NAME)
    write_beginning(folder, spec)
    record = SweepRecord(folder, spec)
    record.begin({}, [folder / paths.SPEC_FILE, folder / paths.PLAN_FILE], [])
    driver = Driver(record, Callbacks(), max_concurrent=at_a_time)
    senders: list[TimedSender] = []

    def make_sender(*arguments: Any) -> Sender:
        senders.append(TimedSender(*arguments))
        return senders[-1]

    with patch.object(lifecycle, "Sender", make_sender):
        tracked = lifecycle.Lifecycle(folder, spec.tracking, own_database(root), Callbacks())
    started = perf_counter()
    tracked.begin(plan_of(spec))
    costs = _feed(driver)
    driver.finish()
    record.end("FINISHED", None)
    while not spec.tracking.offline and senders[0].pending():  # `close` waits two minutes at most
        sleep(0.1)
    tracked.close(stopped=False)
    assert spec.tracking.offline or not senders[0].pending(), senders[0].last_error
    assert len(driver.trials) == spec.search.num_planned_trials
    assert not any(trial.is_open for trial in driver.trials)
    return costs._replace(sender=senders[0].cpu_seconds, total=perf_counter() - started)


def _feed(driver: Driver) -> Driven:
    """Trains with a new epoch of each live trial in turn, as Tune's loop passes them on."""
    random, live, reports = Random(0), dict[str, int](), 0
    seconds = cpu = suggestions = 0.0
    driver.begin()
    while not driver.is_over:
        begin, begin_cpu = perf_counter(), thread_time()
        while (task := driver.next()) is not None:
            live[task.trial] = 0
        seconds += perf_counter() - begin
        suggestions += thread_time() - begin_cpu
        for name in list(live):
            live[name] += 1
            done = live[name] == EPOCHS
            result = {"lines": [line_of(name, live[name], random)], "done": done}
            begin, begin_cpu = perf_counter(), thread_time()
            if not take(driver, name, result) or done:
                del live[name]
                driver.ended(name, Status.FINISHED if done else Status.RUNNING)
            driver.record.log.tick()
            seconds += perf_counter() - begin
            cpu += thread_time() - begin_cpu
            reports += 1
    return Driven(reports, seconds, cpu + suggestions, suggestions, 0.0, 0.0)


def driver_rows(num_trials: int, at_a_time: int) -> Rows:
    """Returns the speed and the peak memory of a driver without a sender."""
    with TemporaryDirectory() as folder:
        spec = sweep_spec(num_trials, sampler="random")
        costs = drive(spec, Path(folder), at_a_time)
    what = f"driver alone, {num_trials:,} trials, {at_a_time} at a time"
    per_second, per_core = (f"{costs.reports / each:,.0f}" for each in (costs.seconds, costs.cpu))
    return [
        (f"{what}: reports/s, per core-second", f"{per_second}, {per_core}", "1,000"),
        ("its peak memory, GB", f"{most_resident_bytes() / 1e9:.2f}", "1.5"),
    ]


def tpe_rows(num_trials: int, at_a_time: int) -> Rows:
    """Returns the seconds of a driver with TPE and a sender to SQLite."""
    with TemporaryDirectory() as folder:
        spec = with_values(sweep_spec(num_trials, sampler="tpe"), {"tracking.offline": False})
        costs = drive(spec, Path(folder), at_a_time)
    what = f"the same with TPE and SQLite, {num_trials:,} trials, {costs.reports:,} epochs"
    text = f"{costs.total:.0f} s, {costs.suggestions:.0f} s, {costs.sender:.0f} s"
    return [
        (f"{what}: in all, CPU of suggestions, of sender", text, ""),
        ("its peak memory, GB", f"{most_resident_bytes() / 1e9:.2f}", ""),
    ]


def suggestion_rows(number: int) -> Rows:
    """Returns the seconds of TPE's suggestion for the trial of this number."""
    spec, random, trials = sweep_spec(number, sampler="tpe"), Random(0), list[Trial]()
    suggester = Suggester(spec.search, spec.seed)
    for i in range(number - 1):
        params = {"method.temperature": 10 ** random.uniform(-2, 0), "train.lr": 0.1}
        # As ASHA stops them: each third trial trains to its end.
        status = Status.PRUNED if i % 3 else Status.FINISHED
        last = EPOCHS if status is Status.FINISHED else EPOCHS // 2
        values = {epoch: random.random() for epoch in range(1, last + 1)}
        trial = Trial(paths.trial_name(i), i, params, 0, EPOCHS, status=status, values=values)
        trials.append(trial)
    seconds = []
    for _ in range(1 + ROUNDS):
        begin = thread_time()
        assert suggester.configuration(number - 1, trials)
        seconds.append(thread_time() - begin)
    text = f"{median(seconds[1:]):.2f}, {seconds[0]:.2f}"
    return [(f"suggestion of trial {number:,} by TPE, the first of a driver, CPU s", text, "0.2")]


def sender_rows(rounds: int) -> Rows:
    """Returns the speed of a sender with a backlog, by store."""
    with TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/server.db"
        own = _speed(Path(folder) / "own", None, rounds)
        with mlflow_server(store) as address:
            server = _speed(Path(folder) / "server", address, rounds)
    what = f"sender, {SENT_RUNS} runs x {SENT_EPOCHS} epochs behind, epochs/s, per core-second"
    return [
        (f"{what}: to SQLite", own, "550"),
        (f"{what} of the sender: to a server with 1 worker", server, "368"),
    ]


def _speed(root: Path, uri: str | None, rounds: int) -> str:
    folder = paths.sweep_folder(root, NAME)
    log = EventLog(paths.event_file(folder))
    log.append(Started(params={}, tags={"mtcon.sweep": NAME}))
    sender = Sender(folder, uri or own_database(root), "mtcon-ray")
    sender.attempt()  # imports mlflow and makes the tables
    speeds = []
    for number in range(rounds):
        runs = range(number * SENT_RUNS, (number + 1) * SENT_RUNS)
        log.append(*events_of(runs, SENT_EPOCHS, len(idle_trial.epoch_metrics(1))))
        begin, begin_cpu = perf_counter(), thread_time()
        sender.attempt()
        seconds, cpu = perf_counter() - begin, thread_time() - begin_cpu
        assert not sender.pending(), sender.last_error
        speeds.append((SENT_RUNS * SENT_EPOCHS / seconds, SENT_RUNS * SENT_EPOCHS / cpu))
    return ", ".join(f"{median(each):.0f}" for each in zip(*speeds, strict=True))
