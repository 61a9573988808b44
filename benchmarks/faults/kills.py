"""Kills: of the driver, of all or a part of Ray, of a trial's process, of a trial's worker."""

import signal
import time
from pathlib import Path

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import HERE, NAME, PAIR, SWEEP, TRAIN, Job
from benchmarks.faults.moments import DECODING
from benchmarks.faults.processes import kill, processes_of, running, titled
from benchmarks.faults.rounds import Outcome, Round
from mtcon_ray.base.paths import SPEC_FILE, event_file

# The jobs of a kind that allows any job, in turns. A sweep takes four times as long.
JOBS = (TRAIN, HERE, TRAIN, SWEEP)
# Process titles of a trial, and of each worker of a trial with several workers.
TRIAL_TITLE, WORKER_TITLE = "ray::ResourceTrainable", "ray::RayTrainWorker"
REGISTER_TITLE = "ray::RegisterActor"

# An event of a lost process, and the time limit of a stopped sweep: its trials get 30 s.
LOST, STOP_SECONDS = b'{"kind": "lost"', 30.0

# A local Ray's programs without which all trials stop, and the time limit for the sweep's end.
RAY_PARTS, END_SECONDS = ("raylet", "gcs_server"), 60.0


def job_of(round_: Round) -> Job:
    """Returns the job of a round if its kind allows any job."""
    return JOBS[round_.number % len(JOBS)]


def driver(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Kills the driver alone (kill -9), up to three times in a row."""
    _kill_driver(Case(folder, round_, outcome, job_of(round_)), and_ray=False)


def driver_and_ray(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Kills the driver and all processes of Ray at once, up to three times in a row."""
    _kill_driver(Case(folder, round_, outcome, SWEEP), and_ray=True)


def _kill_driver(case: Case, *, and_ray: bool) -> None:
    try:
        moments = [case.moment() for _ in range(case.random.choice((1, 1, 2, 3)))]
        is_fresh = moments[0].write == DECODING or case.random.random() < 0.2
        case.prepare(fresh=is_fresh)
        command = case.start()
        for moment in moments:
            if not case.reach(command, moment):
                break
            if and_ray:
                command.kill_all()
            else:
                command.kill()
                command.process.wait()
            command = case.resume()
        if case.was_broken:
            case.recover(command)
        case.finish(command)
    finally:
        case.close()


def trial(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Kills a trial's process and expects the sweep to restart the trial by itself."""
    _kill_part(Case(folder, round_, outcome, SWEEP), TRIAL_TITLE)


def rank(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Kills a worker of two and expects the trial to recover by itself."""
    _kill_part(Case(folder, round_, outcome, PAIR), WORKER_TITLE)


def register(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Kills the register of the trials' processes, then stops the sweep in every second round.

    The trials continue as if nothing had happened, and hear of the stop by the restarted register.
    """
    case = Case(folder, round_, outcome, SWEEP)
    try:
        case.prepare()
        command = case.start()
        if case.reach(command, case.early_moment()):
            before = event_file(case.run).read_bytes().count(LOST)

            def registers() -> list[int]:
                return titled(processes_of(case.mark, command.pid), REGISTER_TITLE)

            found = registers()
            case.expect(len(found) == 1, f"{len(found)} registers run")
            for pid in found:
                kill(pid)
            case.recover(command, since=time.monotonic())
            # A stop before the restart is heard late: after 30 s Tune ends the trials.
            command.until(lambda: set(registers()) - set(found), "restart of the register")
            lost = event_file(case.run).read_bytes().count(LOST) - before
            case.expect(not lost, f"{lost} trials were lost with the register")
        if round_.number % 2 and not command.has_ended:
            command.kill(signal.SIGTERM)
            begin = time.monotonic()
            code = command.wait()
            took = time.monotonic() - begin
            outcome.measured["seconds to stop"] = round(took, 1)
            is_stopped = code in (0, 130) and took < STOP_SECONDS
            case.expect(is_stopped, f"the stop took {took:.0f} s and ended with {code}")
            command = case.resume()
        case.finish(command)
    finally:
        case.close()


def _kill_part(case: Case, title: str) -> None:
    try:
        case.prepare()
        command = case.start()
        moment = case.moment()
        while not 0 < moment.epoch < case.all_epochs:
            moment = case.moment()

        victims: list[int] = []

        def find() -> list[int]:
            victims[:] = titled(processes_of(case.mark, command.pid), title)
            return victims

        if case.reach(command, moment):
            # While Ray changes the titles of its processes, a process may have no title.
            has_found = command.until(find, f"process of the title {title}", pause=0.001)
            case.expect(has_found, f"no process of the title {title}")
            chosen = case.random.randrange(max(1, len(victims)))
            for pid in victims[chosen : chosen + 1]:
                kill(pid)
                case.outcome.happened.append(f"killed process {chosen + 1} of {len(victims)}")
            case.recover(command, since=time.monotonic())
        case.finish(command)
    finally:
        case.close()


def ray(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Kills the raylet or the GCS of a local Ray, waits for the sweep's end, and resumes."""
    case = Case(folder, round_, outcome, SWEEP)
    try:
        case.prepare()
        program, moment = case.choose(RAY_PARTS), case.moment()
        command = case.start()

        def found() -> list[int]:
            return running(processes_of(case.mark, command.pid), program)

        if case.reach(command, moment) and command.until(found, program):
            # After the last epoch the command may no longer need Ray.
            is_over, begin = case.num_epochs == case.all_epochs, time.monotonic()
            for pid in found():
                kill(pid)
            outcome.happened.append(f"killed {program}")
            command.wait()
            took = time.monotonic() - begin
            outcome.measured["seconds to end"] = round(took, 1)
            case.expect(took < END_SECONDS, f"the end took {took:.0f} s")
            more = f" with --name {NAME} --resume" if (case.run / SPEC_FILE).exists() else ""
            words = "" if is_over else f"repeat the command{more}"
            case.expect_end(command, [0, 1] if is_over else [1], words)
            case.check_left(command)
            command = case.resume()
            case.recover(command)
        case.finish(command)
    finally:
        case.close()
