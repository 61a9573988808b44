"""A trial that diverges, runs out of memory, loses its process for good, or hangs."""

from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import SEARCH, SWEEP
from benchmarks.faults.rounds import Outcome, Round
from mtcon_ray.base.paths import event_file
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Lost
from mtcon_ray.spec.search import SearchSpec
from tests.sweep.small_sweeps import failing_steps

# Runs in a step of the trial with this temperature. The other trial must not be affected.
VICTIM = "run.spec.method.temperature == 0.5 and run.step == {step}"
TORCH = "__import__('torch')"
WAYS: Mapping[str, tuple[str, str]] = {
    "NaN": (
        "[p.data.fill_(float('nan')) for p in run.network.parameters()] and False",
        "Diverged: ",
    ),
    "out of memory": (f"{TORCH}.empty(1 << 50) is None", "OutOfMemory: "),
    "its process exits": ("__import__('os')._exit(1)", "log: "),
}
# The bytes taken by a trial of `memory`, which waits then.
TOO_MUCH, WAIT = 6 << 30, "__import__('time').sleep(60)"
# `search.stall_minutes` ends a hang if the program has this field.
HANG = "hangs"
STALL_FIELD, STALL_MINUTES = "stall_minutes", 2


def trial_error(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Breaks a trial of two: the reason is recorded and the sweep continues."""
    case = Case(folder, round_, outcome, SWEEP)
    try:
        case.prepare()
        ways = (*WAYS, HANG) if STALL_FIELD in SearchSpec.model_fields else tuple(WAYS)
        way, step = case.choose(ways), case.random.randrange(1, 8 * case.job.epochs)
        outcome.happened.append(way)
        outcome.moments.append(f"step {step}")
        expression, reason = WAYS.get(way, (_once(case.folder), ""))
        where = f"{VICTIM.format(step=step)} and {expression}"
        case.variables["site"] = failing_steps(case.folder, where, "KeyError(run.step)")
        search = {**SEARCH, "max_failures": 1}
        case.changes["search"] = {**search, STALL_FIELD: STALL_MINUTES} if way == HANG else search
        command = case.start()
        code = command.wait()
        case.expect(code == 0, f"the sweep ended with {code}")
        case.check_left(command)
        if way == HANG:
            case.judge()
            return
        for key, wanted in case.undisturbed.trials.items():
            found = case.trials()[key]
            if wanted.params["method.temperature"] == 0.5:
                told = f"{found.status.words}: {found.reason}"
                outcome.happened.append(told[:300])
                is_told = found.status is Status.FAILED and reason in str(found.reason)
                case.expect(is_told, f"{told}; it must have failed with {reason!r}")
            else:
                case.compare(key, found, wanted)
        for problem in case.audit():
            case.expect(False, f"audit: {problem}")
        case.expect_no_trace()
    finally:
        case.close()


def memory(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Lets a trial take so much memory that Ray kills a process. Nothing of the other is lost."""
    case = Case(folder, round_, outcome, SWEEP)
    try:
        case.prepare()
        about = psutil.virtual_memory()
        threshold = (about.total - about.available + TOO_MUCH * 3 // 4) / about.total
        case.variables["RAY_memory_usage_threshold"] = f"{threshold:.3f}"
        step = case.random.randrange(1, 8 * case.job.epochs)
        outcome.moments.append(f"step {step}")
        marker = f"__import__('pathlib').Path({str(case.folder / 'grew')!r})"
        grow = f"({marker}.touch(), setattr(run, 'grown', b'1' * {TOO_MUCH}), {WAIT}) is None"
        where = f"{VICTIM.format(step=step)} and not {marker}.exists() and {grow}"
        case.variables["site"] = failing_steps(case.folder, where, "KeyError(run.step)")
        command = case.start()
        case.expect(command.wait() == 0, "the sweep failed")
        case.was_broken = True
        lost = [e for e in read_events(event_file(case.run)) if isinstance(e, Lost)]
        outcome.happened += [f"{event.trial}: {event.reason[:200]}" for event in lost]
        case.expect(len(lost) == 1, f"{len(lost)} processes were lost, 1 is expected")
        case.finish(command)
    finally:
        case.close()


def _once(folder: Path) -> str:
    """Returns an expression that hangs in the first process to evaluate it."""
    marker = f"__import__('pathlib').Path({str(folder / 'hung')!r})"
    return f"not {marker}.exists() and ({marker}.touch(), __import__('time').sleep(1e6)) is None"
