"""Plan, record and table of fault injection; and one kind on real processes."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.faults import program
from benchmarks.faults.case import Case
from benchmarks.faults.jobs import REPOSITORY, TRAIN, Undisturbed
from benchmarks.faults.processes import children_of, running
from benchmarks.faults.rounds import RECORD, Outcome, Round, planned, recorded, run_missing, table
from benchmarks.faults.share import time_in_tracking
from benchmarks.faults.tracking import LOCKED, Database
from mtcon_ray.paths import MODEL_FILE
from mtcon_ray.training import checkpoint
from tests.waiting import wait_until


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


@pytest.mark.parametrize("num", range(2, 6))
def test_a_few_rounds_meet_each_variant_through_each_job(num: int) -> None:
    variants = range(num)
    met = set()
    for number in range(4 * num):
        case = cast(Case, SimpleNamespace(round=Round("signals", number, 0)))
        met.add((number % 4, Case.choose(case, variants)))
    assert met == {(part, variant) for part in range(4) for variant in variants}


def test_a_locked_database_takes_nothing_until_it_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with (
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other,
        closing(Database(path)) as database,
    ):
        other.execute("CREATE TABLE runs (name)")
        database.break_by(LOCKED)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO runs VALUES ('cut')")
        database.repair()
        other.execute("INSERT INTO runs VALUES ('cut')")


TRACKED = """
import sys, threading, time
from pathlib import Path
from benchmarks.faults.share import PATCH, FILE
from mtcon_ray.tracking import event_log
from mtcon_ray.tracking.events import Reported

write = event_log.append_durably
def slow_write(*args):
    time.sleep(0.1)
    write(*args)
event_log.append_durably = slow_write
exec(PATCH.replace("{file!r}", "FILE"))
patch(None)
logs = [event_log.EventLog(Path(name)) for name in ("main.jsonl", "other.jsonl")]

def train(log, later):
    time.sleep(later)
    for epoch in range(1, 4):
        time.sleep(0.3)
        log.append(Reported(epoch=epoch, metrics={}))

threading.Thread(target=train, args=(logs[1], 0.2)).start()
train(logs[0], 0)
"""


def test_the_time_of_tracking_is_the_main_thread_s_alone(tmp_path: Path) -> None:
    """Two epochs of 0.3 s with 0.1 s of tracking each, a quarter; the first one is not counted."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", TRACKED], cwd=tmp_path, env=environment, check=True)
    spent, seconds = time_in_tracking(tmp_path)
    assert spent / seconds == pytest.approx(0.25, abs=0.08)


def test_processes_are_found_by_their_parent_and_their_program() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        wait_until(lambda: running([process.pid], "sleep"), "sleep", process=process)
        assert process.pid in children_of(os.getpid())
        assert running([os.getpid(), process.pid], "sleep") == [process.pid]
        process.kill()


def test_each_kind_is_on_its_page() -> None:
    page = (REPOSITORY / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")][
        : len(program.KINDS)
    ] == list(program.KINDS)


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
