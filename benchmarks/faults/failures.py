"""A trial that diverges, runs out of memory, loses its process for good, or hangs."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import SEARCH, SWEEP
from benchmarks.faults.rounds import Outcome, Round
from mtcon_ray.base.status import Status
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


def _once(folder: Path) -> str:
    """Returns an expression that hangs in the first process to evaluate it."""
    marker = f"__import__('pathlib').Path({str(folder / 'hung')!r})"
    return f"not {marker}.exists() and ({marker}.touch(), __import__('time').sleep(1e6)) is None"
