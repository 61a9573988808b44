"""A round's root, commands and moments of failure, and the final check."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from benchmarks.faults.jobs import (
    NAME,
    PROGRAM,
    Job,
    Undisturbed,
    environment,
    epochs_in_mlflow,
    lasting,
    network_of,
    num_epochs,
    reports,
    root_of,
    trial_folder,
    trials_of,
)
from benchmarks.faults.moments import DECODING, WRITES, Moment
from benchmarks.faults.processes import Command, command_line, last_line, processes_of
from benchmarks.faults.rounds import Outcome, Round
from mtcon_ray.base.paths import (
    LAST_FILE,
    MODEL_FILE,
    SPEC_FILE,
    cache_folder,
    event_file,
    shown,
    stored_url,
)
from mtcon_ray.base.status import Status
from mtcon_ray.errors import MtconError
from mtcon_ray.records.results import TrialResult
from mtcon_ray.records.stored import fetch_sweep, fetch_trials
from mtcon_ray.training import checkpoint
from mtcon_ray.training.uploads import NETWORKS

T = TypeVar("T")

# After this many seconds, processes that outlive a command's own end count as a fault.
LEFT_SECONDS = 10.0
# Agents of a Ray that was killed may try for this long to report to its GCS before they end.
AGENTS, AGENT_SECONDS = {"", "ray::DashboardAgent", "ray::RuntimeEnvAgent"}, 90.0


class Case:
    """The run of a round."""

    def __init__(self, folder: Path, round_: Round, outcome: Outcome, job: Job) -> None:
        self.undisturbed = Undisturbed(folder, job)
        self.round, self.outcome, self.job = round_, outcome, job
        self.random = round_.random()
        self.folder = folder / "rounds" / round_.name
        self.folder.mkdir(parents=True)
        self.root = root_of(self.folder, round_.name)
        self.mark = f"{round_.name}-{time.time_ns()}"
        self.commands: list[Command] = []
        self.variables: dict[str, str] = {}
        self.changes: dict[str, Any] = {}
        if stored_url(self.root):
            self.changes["storage"] = {"local": str(self.folder)}
        self.was_broken = False
        outcome.through = job.name

    @property
    def run(self) -> Path:
        """The folder of the records."""
        return self.job.folder(self.root)

    @property
    def num_epochs(self) -> int:
        """The number of recorded epochs of all trials."""
        return sum(num_epochs(self.run).values())

    @property
    def last_epoch_time(self) -> float:
        """The Unix time at which the last epoch was recorded."""
        return max(event.time_ms for event in reports(self.run)) / 1000

    @property
    def all_epochs(self) -> int:
        """The epochs of all trials of an undisturbed run."""
        return sum(len(trial.reports) for trial in self.undisturbed.trials.values())

    def prepare(self, *, fresh: bool = False) -> None:
        """Makes the root, without MLflow database and decoded images if `fresh`."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not fresh:
            self.undisturbed.copy_beginnings(self.root)

    def start(self, *more: str, **options: Any) -> Command:
        """Starts the command."""
        spec = self.job.write(self.folder, **self.changes)
        return self.launch(self.job.words(self.root, spec, *more), **options)

    def resume(self) -> Command:
        """Resumes by the command of a user, or starts if no spec is recorded yet.

        With an object store the records of this machine are lost in half of the cases.
        """
        self._count_lost_epochs()
        words = self.job.resuming if (self.run / SPEC_FILE).exists() else ()
        if not stored_url(self.root):
            return self.start(*words)
        is_there = fetch_sweep(self.run)
        if self.random.random() < 0.5:
            shutil.rmtree(self.run, ignore_errors=True)
            self.outcome.happened.append("the records of this machine are lost")
        return self.start(*(self.job.resuming if is_there else ()), "--take-over")

    def launch(self, words: Sequence[str], **options: Any) -> Command:
        """Starts any command and writes its output to a file of the round's folder."""
        output = self.folder / f"output-{len(self.commands)}.txt"
        variables = environment(MTCON_RAY_ROOT=shown(self.root), **self.variables)
        command = Command(words, output, variables, self.mark, **options)
        self.commands.append(command)
        return command

    def close(self) -> None:
        """Ends all processes of the round."""
        for command in self.commands:
            command.kill_all()

    def choose(self, variants: Sequence[T]) -> T:
        """Returns the next variant of a kind, which gives all of them in a few rounds.

        The shift lets every variant meet every `number % 4`, which decides if a sweep is used.
        """
        number, shift = self.round.number, self.round.number // 4 * (len(variants) % 2 == 0)
        return variants[(number + shift) % len(variants)]

    # --- moments

    def moment(self) -> Moment:
        """Draws a moment: a quarter in the start, a fifth at the end, else in the training."""
        draw, times = self.random.random(), self.undisturbed
        if draw < 0.25:
            return Moment(0, self.random.uniform(0, times.first))
        if draw < 0.3:
            return Moment(0, 0, DECODING)
        if draw < 0.5:
            return Moment(self.all_epochs, self.random.uniform(0, times.end - times.last))
        epoch = self.random.randrange(1, self.all_epochs)
        write = self.random.choice((None, *WRITES))
        return Moment(epoch, self.random.uniform(0, 0.3), write)

    def early_moment(self) -> Moment:
        """Draws a moment in the first half of the training."""
        epoch = self.random.randrange(1, max(2, self.all_epochs // 2))
        return Moment(epoch, self.random.uniform(0, 0.3))

    def reach(self, command: Command, moment: Moment) -> bool:
        """Waits for the moment and returns True, or False if the command ends earlier."""
        reached = (
            command.until(lambda: self.num_epochs >= moment.epoch, f"epoch {moment.epoch}")
            and self._pause(command, moment.seconds)
            and (moment.write is None or self._next_write(command, moment.write))
        )
        self.was_broken |= reached
        self.outcome.moments.append(str(moment) if reached else f"after its end ({moment})")
        return reached

    def _pause(self, command: Command, seconds: float) -> bool:
        end = time.monotonic() + seconds
        return command.until(lambda: time.monotonic() >= end, "a pause", seconds + 60, 0.01)

    def _next_write(self, command: Command, what: str) -> bool:
        """Returns once the write has begun, or at the command's end."""
        pause = 0.002 if what == DECODING else 0.0003
        return command.until(self._writing(what), f"write of the {what}", pause=pause)

    def _writing(self, what: str) -> Callable[[], bool]:
        places = self.trial_folders()
        if what == DECODING:
            return lambda: any(cache_folder(self.root).glob("*.building/images.npy"))
        if what in ("checkpoint", "network"):
            name = LAST_FILE if what == "checkpoint" else MODEL_FILE
            return lambda: any(any(place.rglob(f".{name}.partial")) for place in places)
        log = event_file(self.run)
        before = log.stat().st_size if log.exists() else 0
        return lambda: log.exists() and log.stat().st_size != before

    def trial_folders(self) -> list[Path]:
        """Returns the folders of networks and checkpoints of all trials."""
        names = (trial.name for trial in self.undisturbed.trials.values())
        if stored_url(self.root):
            return [self.root / "running" / NAME / name for name in sorted(names)]
        return [trial_folder(self.job, self.root, name) for name in sorted(names)]

    # --- after the fault

    def recover(self, command: Command, since: float | None = None) -> None:
        """Waits until every unfinished trial has another epoch, and records the seconds.

        If all trials are finished, waits for the end of the command.
        """
        begin = command.began if since is None else since
        before = num_epochs(self.run)
        todo = {trial: n for trial, n in before.items() if n < self.job.epochs}

        def recovered() -> bool:
            now = num_epochs(self.run)
            if not before:  # no trial had an epoch
                return bool(now)
            return bool(todo) and all(now.get(trial, 0) > n for trial, n in todo.items())

        command.until(recovered, "epoch of each trial after the fault")
        self.outcome.seconds_to_recover.append(round(time.monotonic() - begin, 1))

    def finish(self, command: Command) -> None:
        """Waits for the command to succeed, then checks its processes and records."""
        code = command.wait()
        self.expect(code == 0, f"the last command ended with {code}: {last_line(command)}")
        self.check_left(command)
        self.judge()

    def expect(self, holds: bool, problem: str) -> None:
        """Adds a problem if `holds` is False."""
        if not holds:
            self.outcome.problems.append(problem)

    def expect_end(self, command: Command, codes: Sequence[int], words: str = "") -> None:
        """Waits for the end of a command, and checks its exit code and its output for `words`."""
        code, said = command.wait(), command.printed()
        shown = f"ended with {code}: {last_line(command)}"
        self.outcome.happened.append(shown[:300])
        self.expect(code in codes, f"{shown}; it must end with {' or '.join(map(str, codes))}")
        self.expect(words in said, f"{shown}; it must say {words!r}")

    def _count_lost_epochs(self) -> None:
        """Counts the recorded epochs without a checkpoint in unfinished trials: trained again."""
        if not (self.run / SPEC_FILE).exists():
            return
        for trial in self.trials().values():
            if not trial.status.is_final:
                self.outcome.epochs_twice += max(0, trial.last_epoch - self._saved(trial))

    def _saved(self, trial: TrialResult) -> int:
        """Returns the last completed epoch of the newest checkpoint, 0 without a checkpoint.

        Checks that the checkpoint has the events of its epochs. The event of a training's last
        epoch is not in it.
        """
        fetch_trials(self.run, NETWORKS, trial.name)
        state = checkpoint.load_newest(trial_folder(self.job, self.root, trial.name)).state
        if not state or not state["last"]:
            return 0
        last, epochs = state["last"], [json.loads(line)["epoch"] for line in state["lines"]]
        wanted = list(range(1, last["epoch"] + (not last["done"])))
        self.expect(epochs == wanted, f"the checkpoint of {trial.name} has the epochs {epochs}")
        return int(last["epoch"])

    def trials(self) -> dict[str, TrialResult]:
        """Returns the trials by their searched values, or {} if they cannot be read."""
        try:
            return trials_of(self.job, self.root)
        except MtconError as error:
            self.outcome.happened.append(str(error)[:300])
            return {}

    # --- the final check

    def judge(self) -> None:
        """Compares records and parameters with the undisturbed run, and runs the audit."""
        fetch_trials(self.run, NETWORKS)
        found = self.trials()
        for key, wanted in self.undisturbed.trials.items():
            trial = found.get(key)
            if trial is None or trial.status is not Status.FINISHED:
                self.outcome.lost_trials += 1
                state = trial.status.words if trial else "not there"
                self.expect(False, f"{wanted.name} is {state}")
            if trial is not None:
                self.compare(key, trial, wanted)
        self.expect_no_trace()
        if "tracking" not in self.changes:
            self.compare_mlflow()
        for problem in self.audit():
            self.expect(False, f"audit: {problem}")

    def compare_mlflow(self) -> None:
        """Checks that the root's database has each epoch of each trial once."""
        found = epochs_in_mlflow(self.job, self.root)
        wanted = sorted((t.name, e) for t in self.undisturbed.trials.values() for e, _ in t.reports)
        lost, more = set(wanted) - set(found), len(found) - len(set(found))
        self.expect(found == wanted, f"MLflow lacks {len(lost)} epochs, {more} are there twice")

    def expect_no_trace(self) -> None:
        """Checks all commands' output for a traceback and for an unexpected error."""
        for command in self.commands:
            for word in ("Traceback", "error: unexpected"):
                self.expect(word not in command.printed(), f"{command.output.name} has {word!r}")

    def compare(self, key: str, trial: TrialResult, wanted: TrialResult) -> None:
        """Compares a trial's metrics and parameters with the undisturbed trial."""
        had, has = dict(wanted.reports), dict(trial.reports)
        missing = sorted(set(had) - set(has))
        self.outcome.lost_metrics += len(missing)
        self.expect(not missing, f"{trial.name} lacks the metrics of epochs {missing}")
        doubled = len(trial.reports) - len(has)
        self.expect(not doubled, f"the event log has {doubled} epochs of {trial.name} twice")
        other = [e for e in has if e in had and lasting(has[e]) != lasting(had[e])]
        self.expect(not other, f"{trial.name} has other metrics in epochs {other[:5]}")
        if trial.status is not Status.FINISHED:
            return
        try:
            network = network_of(self.job, self.root, trial)
        except MtconError as error:
            self.expect(False, str(error))
            return
        wanted_network = self.undisturbed.networks[key]
        differ = [
            n
            for n, tensor in wanted_network.items()
            if n not in network or not torch.equal(tensor, network[n])
        ]
        self.expect(
            not differ and len(network) == len(wanted_network),
            f"{trial.name}: {len(differ)} parameters are not bit-equal",
        )

    def audit(self) -> list[str]:
        """Returns the findings of `mtcon-ray audit`."""
        words = [*PROGRAM, "audit", NAME, "--json", "--root", shown(self.root)]
        command = self.launch(words)
        command.wait()
        try:
            told = json.loads(command.printed())
        except ValueError:
            return [f"no answer: {last_line(command)}"]
        return [f"{f['where']}: {f['problem']}" for f in told["found"]]

    def check_left(self, command: Command) -> None:
        """Checks that all processes of an ended command and of all before it are gone in time."""
        began = time.monotonic()
        while left := processes_of(self.mark, command.pid):
            titles = {command_line(pid)[:60] for pid in left}
            limit = AGENT_SECONDS if titles <= AGENTS else LEFT_SECONDS
            if time.monotonic() > began + limit:
                shown = f"{len(left)} processes are left after the end: {sorted(titles)}"
                return self.expect(False, shown)
            time.sleep(0.2)
