"""Many trials under constant faults: their processes are killed, MLflow goes away repeatedly.

The sweep uses a running Ray, which outlives it and so shows all that the sweep leaves behind. This
Ray has a CPU for each concurrent trial, although the trials share the machine's cores.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ray.cluster_utils import Cluster

from benchmarks.faults.case import LEFT_SECONDS, Case
from benchmarks.faults.jobs import SPEC, SWEEP, results_of
from benchmarks.faults.kills import TRIAL_TITLE
from benchmarks.faults.nodes import cluster_of, raylet_of
from benchmarks.faults.processes import Command, children_of, command_line, kill, titled
from benchmarks.faults.rounds import Outcome, Round
from benchmarks.faults.tracking import proxied
from mtcon_ray.base.status import Status

# Allowed growth of the driver's memory while the last three quarters of the trials run.
GROWTH = 0.10
# The number of open connections varies. A leak per fault or trial would exceed this.
HANDLES = 20
MAX_FAILURES = 50
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Load:
    """The size of a load run, with a fault `every` seconds."""

    trials: int = 12
    at_a_time: int = 2
    every: float = 10.0

    def __call__(self, folder: Path, round_: Round, outcome: Outcome) -> None:
        """Runs the sweep under faults and checks records, memory, handles and leftovers."""
        case = Case(folder, round_, outcome, SWEEP)
        outcome.through = f"{self.trials} trials, {self.at_a_time} at a time"
        grid = [round(0.05 + 0.9 * i / self.trials, 4) for i in range(self.trials)]
        case.changes["search"] = {
            "space": {"method.temperature": {"grid": grid}},
            "sampler": "grid",
            "scheduler": "none",
            "max_concurrent": self.at_a_time,
            "max_failures": MAX_FAILURES,
        }
        temporary = case.folder / "tmp"
        temporary.mkdir()
        case.variables["TMPDIR"] = str(temporary)
        try:
            case.prepare()
            with proxied(case.root) as proxy, cluster_of(self.at_a_time, **case.variables) as ray:
                case.changes["tracking"] = {"uri": proxy.uri}
                case.variables["RAY_ADDRESS"] = ray.address
                raylet, left = raylet_of(ray.head_node), _watch(ray, temporary)
                command = case.start()
                begin, faults, sizes = time.monotonic(), 0, dict[int, tuple[float, int]]()
                while self._pause(command):
                    ended = self._num_ended(case)
                    sizes.setdefault(ended, _size_of(command.pid))
                    faults += 1
                    proxy.way = None
                    if faults % 2:
                        running = titled(children_of(raylet), TRIAL_TITLE)
                        if running:
                            kill(case.random.choice(running))
                            outcome.moments.append(f"{time.monotonic() - begin:.0f} s: a trial")
                    else:
                        proxy.way = "away"
                        outcome.moments.append(f"{time.monotonic() - begin:.0f} s: MLflow")
                proxy.repair()
                code = command.wait()
                case.expect(code == 0, f"the sweep ended with {code}")
                case.check_left(command)
                deadline = time.monotonic() + LEFT_SECONDS
                while left() and time.monotonic() < deadline:
                    time.sleep(0.2)
                case.expect(not left(), f"left after the end: {left()}")
                self._judge(case, sizes)
        finally:
            case.close()

    def _pause(self, command: Command) -> bool:
        """Waits until the next fault and returns True, or False if the sweep has ended."""
        end = time.monotonic() + self.every
        return command.until(lambda: time.monotonic() > end, "the next fault", self.every + 60)

    def _num_ended(self, case: Case) -> int:
        return sum(trial.status.is_final for trial in case.trials().values())

    def _judge(self, case: Case, sizes: dict[int, tuple[float, int]]) -> None:
        epochs = list(range(1, SPEC["train"]["epochs"] + 1))
        finished = 0
        for trial in results_of(case.job, case.root).trials:
            finished += trial.status is Status.FINISHED
            found = [epoch for epoch, _ in trial.reports]
            case.outcome.lost_metrics += len(set(epochs) - set(found))
            case.expect(found == epochs, f"{trial.name} has the epochs {found}")
        case.outcome.lost_trials = self.trials - finished
        case.expect(finished == self.trials, f"{finished} of {self.trials} trials are finished")
        for problem in case.audit():
            case.expect(False, f"audit: {problem}")
        case.expect_no_trace()
        # Only during the trials: building the report imports libraries of a hundred MB.
        during = range(self.trials // 4, self.trials)
        later = [size for ended, size in sorted(sizes.items()) if ended in during]
        if len(later) > 1:
            growth = later[-1][0] / later[0][0] - 1
            case.outcome.measured["% more memory of the driver"] = round(100 * growth, 1)
            handles = later[-1][1] - later[0][1]
            case.outcome.measured["more file handles"] = handles
            case.expect(handles < HANDLES, f"the driver has {handles} more file handles")
            case.expect(growth < GROWTH, f"the driver's memory grew by {100 * growth:.0f} %")


def _watch(ray: Cluster, temporary: Path) -> Callable[[], list[str]]:
    """Returns a function that lists a sweep's leftovers: in Ray, shared memory and a folder."""
    state, raylet = ray.global_state, raylet_of(ray.head_node)
    before = set(SHARED_MEMORY.iterdir())

    def left() -> list[str]:
        free, total = state.available_resources(), state.cluster_resources()
        groups = state.placement_group_table().values()
        return [
            *(f"process {command_line(pid)}" for pid in titled(children_of(raylet), TRIAL_TITLE)),
            *(f"placement group {g['name']}" for g in groups if g["state"] != "REMOVED"),
            *(f"{total[name] - free.get(name, 0):g} of {name}" for name in total
              if free.get(name, 0) < total[name]),
            *(str(path) for path in {*SHARED_MEMORY.iterdir()} - before),
            *(str(path) for path in temporary.iterdir()),
        ]  # fmt: skip

    return left


def _size_of(pid: int) -> tuple[float, int]:
    """Returns the resident bytes and the number of file handles of a process."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return 4096.0 * int(fields[1]), len(list(Path(f"/proc/{pid}/fd").iterdir()))
