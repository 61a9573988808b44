"""Timing in turns, and the description of the machine."""

from functools import partial

import pytest

from benchmarks import timing
from benchmarks.machine import describe_machine


def test_ways_take_turns_and_the_first_round_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock advances only when an alternative runs."""
    done: list[str] = []
    monkeypatch.setattr(timing, "perf_counter", lambda: 10.0 ** len(done))
    ways = {name: partial(done.append, name) for name in "ab"}
    times = timing.interleaved(ways, 2)
    assert "".join(done) == "ababab"
    assert times["a"].seconds == (10.0**3 - 10.0**2, 10.0**5 - 10.0**4)
    assert times["b"].seconds == (10.0**4 - 10.0**3, 10.0**6 - 10.0**5)


def test_ratios_are_of_the_same_round() -> None:
    slow, fast = timing.Times((2.0, 9.0, 4.0)), timing.Times((1.0, 3.0, 1.0))
    assert str(timing.ratio(slow, fast)) == "3.00 (2.00 to 4.00)"


def test_peak_memory_is_what_a_way_takes_beyond_what_is_there() -> None:
    size = 64 * 2**20
    assert 0.9 * size < timing.peak_bytes(lambda: bytearray(b"x") * size) < 1.5 * size


def test_a_number_comes_with_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "tracking"])
    when, commit, machine, gpu, versions = describe_machine().splitlines()
    assert when.endswith("`python -m benchmarks tracking`")
    assert commit.startswith("- commit ")
    assert "usable cores" in machine
    assert gpu.startswith("- GPU: ")
    assert "optuna" in versions
