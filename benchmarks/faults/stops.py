"""Signals, a stopped job, a closed terminal, and a second driver."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import NAME, SUBMITTED, SWEEP, TRAIN, environment
from benchmarks.faults.kills import job_of
from benchmarks.faults.processes import Command, last_line
from benchmarks.faults.rounds import Outcome, Round
from mtcon_ray.base.paths import SPEC_FILE
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.cluster import jobs
from tests.cluster.conftest import environment_of, head_of

# Kubernetes kills after 30 s.
STOP_SECONDS = 30.0
COPY = "copy"
STOP = (str(Path(sys.executable).parent / "ray"), "job", "stop")
SIGNALS = (
    (signal.SIGTERM,),
    (signal.SIGINT,),
    (signal.SIGINT, signal.SIGINT),
    (signal.SIGHUP,),
)


def signals(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Sends SIGTERM, SIGINT, SIGINT twice or SIGHUP, and resumes a started run."""
    case = Case(folder, round_, outcome, job_of(round_))
    try:
        case.prepare()
        chosen, moment = case.choose(SIGNALS), case.moment()
        outcome.happened.append(" and ".join(number.name for number in chosen))
        command = case.start()
        # Before the first output, Python itself starts without any code of the package.
        command.until(command.printed, "output")
        if case.reach(command, moment):
            begin = time.monotonic()
            for number in chosen:
                command.kill(number)
                time.sleep(case.random.uniform(0, 1))
            _check_stopped(case, command, begin, num_signals=len(chosen))
            command = case.resume()
            case.recover(command)
        case.finish(command)
    finally:
        case.close()


def job_stop(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Stops a submitted sweep by `ray job stop`, and resumes it as another job."""
    case = Case(folder, round_, outcome, SWEEP)
    case.job = SUBMITTED
    case.variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    try:
        case.prepare()
        (case.folder / ".rayignore").write_text("root\n")  # prevents the root's upload
        with head_of(environment_of(case.folder) | environment(**case.variables)) as start:
            case.variables[jobs.ADDRESS_VARIABLE] = start()
            command = case.start()
            command.until(lambda: "] starting" in command.printed(), "start of the job")
            if case.reach(command, case.moment()):
                begin = time.monotonic()
                case.expect_end(case.launch([*STOP, f"{NAME}-1"]), [0])
                _check_stopped(case, command, begin, most=jobs.STOP_SECONDS)
                command = case.resume()
                case.recover(command)
            case.finish(command)
    finally:
        case.close()


def _check_stopped(
    case: Case, command: Command, begin: float, num_signals: int = 1, most: float = STOP_SECONDS
) -> None:
    """Checks exit code, records and processes of a command stopped from `begin` on."""
    code, took = command.wait(), time.monotonic() - begin
    case.outcome.measured["seconds to stop"] = round(took, 1)
    case.expect(took < most, f"the stop took {took:.0f} s")
    case.check_left(command)
    # 0 if the command has ended before the signal, which the final check confirms.
    codes = {0, Interrupted.exit_code}
    if num_signals > 1:
        codes.add(-signal.SIGINT)  # the second SIGINT has its default effect
    case.outcome.happened.append(f"exit code {code}: {last_line(command)}")
    case.expect(code in codes, f"the signal ended it with {code}")
    if (case.run / SPEC_FILE).exists() and num_signals == 1:
        for problem in case.audit():
            case.expect(False, f"audit after the signal: {problem}")


def pipe(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Runs without a terminal: standard output is closed, full, or loses its reader."""
    case = Case(folder, round_, outcome, TRAIN)
    try:
        case.prepare()
        how = case.choose(("closed", "full", "its reader ends"))
        outcome.happened.append(f"standard output: {how}")
        words = case.job.words(case.root, case.job.write(case.folder))
        if how == "closed":
            command = case.launch(["sh", "-c", 'exec "$@" >&-', "sh", *words])
        elif how == "full":
            with Path("/dev/full").open("wb") as full:
                command = case.launch(words, stdout=full)
        else:
            reader, writer = os.pipe()
            command = case.launch(words, stdout=writer)
            os.close(writer)
            case.reach(command, case.moment())
            os.close(reader)
        case.finish(command)
    finally:
        case.close()


def twice(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Starts a second driver on a folder, or on a copy of it, while the first runs."""
    case = Case(folder, round_, outcome, job_of(round_))
    try:
        case.prepare()
        how = case.choose(("a second driver", "a copy elsewhere", "a copy beside it"))
        outcome.happened.append(how)
        command = case.start()
        if case.reach(command, case.early_moment()):
            if how == "a second driver":
                case.expect_end(case.start("--resume"), [2], "is already running")
            elif how == "a copy elsewhere":
                _resume_elsewhere(case)
            else:
                shutil.copytree(case.run, case.run.with_name(COPY))
                words = case.job.words(case.root, case.folder / SPEC_FILE, "--resume")
                second = case.launch([COPY if word == NAME else word for word in words])
                case.expect_end(second, [2])
        case.finish(command)
    finally:
        case.close()


def _resume_elsewhere(case: Case) -> None:
    """Resumes a copy under another root with its own database, like a restored backup."""
    copy = case.folder / "copy"
    copy.mkdir(mode=0o700)
    case.undisturbed.copy_beginnings(copy)
    # A file in the middle of its write may go before it is copied.
    shutil.copytree(case.run, case.job.folder(copy), ignore=shutil.ignore_patterns(".*.partial"))
    second = case.launch(case.job.words(copy, case.folder / SPEC_FILE, "--resume"))
    case.expect_end(second, [0])
    first, case.root = case.root, copy
    case.judge()
    case.root = first
