"""The watchdog stops a sweep none of whose trials can be placed, and only such a sweep."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray.tune.experiment import Trial

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.sweep.progress_callback import LOOK_SECONDS, Watch
from mtcon_ray.sweep.stopper import STALL_SECONDS, Stop

CLOCK = "mtcon_ray.sweep.progress_callback.time.monotonic"
Steps = Callable[[float], None]


class Looks(list[Trial]):
    """A list of Tune's trials that counts its iterations."""

    seen = 0

    def __iter__(self) -> Iterator[Trial]:
        self.seen += 1
        return super().__iter__()


@pytest.fixture
def stop(tmp_path: Path) -> Stop:
    return Stop(tmp_path)


@pytest.fixture
def trials() -> Looks:
    """Returns one trial that has ended and one that waits."""
    ended, waiting = (Trial("none", stub=True, config={"trial": name}) for name in ("t0", "t1"))
    ended.status = Trial.TERMINATED
    return Looks([ended, waiting])


@pytest.fixture
def step(stop: Stop, trials: Looks, monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Returns a function that runs one step of Tune's loop at a time in seconds."""
    begin = 1000.0
    monkeypatch.setattr(CLOCK, lambda: begin)
    one = Watch(Callbacks(), stop, "2 GPUs")

    def at(seconds: float) -> None:
        monkeypatch.setattr(CLOCK, lambda: begin + seconds)
        one.on_step_end(iteration=1, trials=trials)

    return at


def test_a_trial_that_is_never_placed_stops_the_sweep(stop: Stop, step: Steps) -> None:
    step(STALL_SECONDS)
    assert not stop.asked
    step(STALL_SECONDS + LOOK_SECONDS)
    assert stop.asked
    assert stop.reason == (
        "no trial could be placed for 900 s: t1 waits for 2 GPUs, which the cluster does not give"
    )


@pytest.mark.parametrize("of_both", [(Trial.RUNNING, Trial.PENDING), (Trial.TERMINATED,) * 2])
def test_the_time_counts_from_when_one_ran_or_none_waited(
    of_both: tuple[str, str], stop: Stop, step: Steps, trials: Looks
) -> None:
    trials[0].status, trials[1].status = of_both
    step(STALL_SECONDS)
    trials[0].status, trials[1].status = Trial.TERMINATED, Trial.PENDING
    step(2 * STALL_SECONDS)
    assert not stop.asked
    step(2 * STALL_SECONDS + LOOK_SECONDS)
    assert stop.asked


def test_trials_are_looked_through_once_a_second(step: Steps, trials: Looks) -> None:
    for turn in range(100):
        step(2 * LOOK_SECONDS + turn * LOOK_SECONDS / 100)
    assert trials.seen <= 2
