"""Plan, record and table of fault injection; and one kind on real processes."""

import json
from pathlib import Path

import pytest

from benchmarks.faults import program
from benchmarks.faults.jobs import TRAIN, Undisturbed
from benchmarks.faults.rounds import RECORD, Outcome, Round, planned, recorded, run_missing, table
from mtcon_ray.paths import MODEL_FILE
from mtcon_ray.training import checkpoint


def quiet(_: str) -> None: ...


def test_moments_follow_from_the_seed() -> None:
    rounds = list(planned(["driver", "rank"], 2, seed=3))
    assert [each.name for each in rounds] == ["driver-3-0", "driver-3-1", "rank-3-0", "rank-3-1"]
    drawn = [each.random().random() for each in rounds]
    assert drawn == [each.random().random() for each in rounds]
    assert len({*drawn, Round("driver", 0, 4).random().random()}) == 5


def test_rounds_that_are_missing_are_run_and_a_failure_is_reported(tmp_path: Path) -> None:
    """A round counts once its line is whole: the kill of the program cuts the last one."""
    ran: list[Round] = []

    def good(round_: Round, outcome: Outcome) -> None:
        ran.append(round_)
        outcome.through = "train"
        outcome.seconds_to_recover.append(4.0 * len(ran))
        outcome.measured["seconds to stop"] = 1.5 * len(ran)

    def planted(round_: Round, outcome: Outcome) -> None:
        outcome.lost_metrics = 2
        outcome.problems.append("the metrics of two epochs are lost")

    rounds = list(planned(["driver"], 3, seed=0))
    assert run_missing(tmp_path, rounds[:2], {"driver": good}, show=quiet)
    assert ran == rounds[:2]
    with (tmp_path / RECORD).open("a") as file:
        file.write('{"kind": "driver", "nu')
    assert run_missing(tmp_path, rounds, {"driver": good}, commit="abc", show=quiet)
    assert ran == rounds, "only the third is missing"
    shown: list[str] = []
    both = {"driver": good, "rank": planted}
    assert not run_missing(tmp_path, [*rounds, Round("rank", 0, 0)], both, show=shown.append)
    assert shown == ["rank-0-0, : : FAILED: the metrics of two epochs are lost (0 s)"]
    found = recorded(tmp_path)
    assert [each for each, _ in found] == [*rounds, Round("rank", 0, 0)]
    last = json.loads((tmp_path / RECORD).read_text().splitlines()[2])
    assert (last["passed"], last["commit"]) == (True, "abc")
    assert table(found, ["rank", "driver"]).splitlines()[2:] == [
        "| rank | 1 | 0 | 0 | 2 | 0 |  |  |  |",
        "| driver, train | 3 | 3 | 0 | 0 | 0 | 8 | 12 | 4.5 seconds to stop |",
    ]


def test_a_round_that_breaks_itself_has_failed(tmp_path: Path) -> None:
    def hangs(round_: Round, outcome: Outcome) -> None:
        raise TimeoutError("no epoch after the fault within 600 s")

    assert not run_missing(tmp_path, [Round("driver", 0, 0)], {"driver": hangs}, show=quiet)
    ((_, outcome),) = recorded(tmp_path)
    assert outcome.problems[0].startswith("TimeoutError at test_faults.py:")
    assert outcome.problems[0].endswith("no epoch after the fault within 600 s")


@pytest.mark.soak
@pytest.mark.mlflow
def test_a_killed_driver_goes_on_and_another_network_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--rounds", "2", "--seed", "7", "--folder", str(tmp_path), "driver"])
    assert "| driver, train | 2 | 2 | 0 | 0 |" in capsys.readouterr().out
    assert all(outcome.moments for _, outcome in recorded(tmp_path))
    assert list((tmp_path / "rounds").iterdir()) == [], "files of failed rounds alone stay"
    # Another undisturbed network: the next round's is not the same.
    path = Undisturbed(tmp_path, TRAIN).run / MODEL_FILE
    state = checkpoint.load(path)
    del state["format"]
    next(iter(state["network"].values())).add_(1)
    checkpoint.save(path, state)
    assert not program.main(["--rounds", "3", "--seed", "7", "--folder", str(tmp_path), "driver"])
    _, outcome = recorded(tmp_path)[-1]
    assert outcome.problems == ["cut: 1 parameters are not bit-equal"]
    assert [files.name for files in (tmp_path / "rounds").iterdir()] == ["driver-7-2"]
