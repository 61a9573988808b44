"""Results, read from the event log; only a trial with its full budget can win."""

import math
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.errors import SweepError
from mtcon_ray.records.events import Ended, Reopened, Reported, Started
from mtcon_ray.records.results import SweepResults, TrialResult, load_sweep
from tests.recorded import plan_with
from tests.run_log import RunLog

EPOCHS = 3
PRUNED = {"mtcon.pruned": "true"}
INTERRUPTED = {"mtcon.interrupted": "true"}


class Folder:
    """Writer of a sweep's folder, one trial per call of `trial`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        (path / "spec.yaml").write_text("name: shoes\n")
        (path / "plan.json").write_text(plan_with().model_dump_json())
        self.count = 0

    def trial(
        self, values: list[float], status: str | None = "FINISHED", *, seed: int = 0,
        tags: dict[str, str] | None = None, params: dict[str, Any] | None = None,
    ) -> RunLog:  # fmt: skip
        name, self.count = f"trial-{self.count:04d}", self.count + 1
        spool = RunLog(self.path, name)
        start = {"mtcon.trial": name, "mtcon.epochs": str(EPOCHS), "mtcon.seed": str(seed)}
        spool.append(Started(params=params or {"method.temperature": 0.1}, tags=start))
        for epoch, value in enumerate(values, start=1):
            spool.append(Reported(epoch=epoch, metrics={"loss": 1.0, "val/accuracy": value}))
        if status:
            spool.append(Ended(status=status, tags=tags or {}))
        return spool

    def load(self) -> SweepResults:
        return load_sweep(self.path)

    def last(self) -> TrialResult:
        return self.load().trials[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "shoes-1")


def test_tables_have_their_columns_before_the_first_trial(folder: Folder) -> None:
    results = folder.load()
    assert {"trial", "state", "value"} <= {*results.to_frame()}
    assert {"trial", "epoch", "loss"} <= {*results.history()}


def test_a_searched_list_is_read_as_a_list(folder: Folder) -> None:
    search = "{objective: a=b, space: {views.crop_scale: {grid: [[0.2, 1.0], [0.5, 1.0]]}}}"
    data = "{kind: table, csv: /labels.csv, images: /images, tasks: [a=b, c]}"
    (folder.path / "spec.yaml").write_text(f"name: shoes\ndata: {data}\nsearch: {search}\n")
    own = {"method.temperature_by_task.a=b": 0.3}
    params = {"train.lr": 1e-05, "views.crop_scale": "[0.5, 1.0]", **own}
    folder.trial([0.1, 0.2, 0.3], seed=7, params=params)
    assert folder.last().params == params | {"views.crop_scale": [0.5, 1.0]}
    spec = folder.load().winner_spec(["views.size=16"])
    assert (spec.seed, spec.train.lr, spec.views.crop_scale) == (7, 1e-05, (0.5, 1.0))
    assert (spec.views.size, spec.search.space, spec.search.objective) == (16, {}, "a=b")
    assert spec.method.model_dump()["temperature_by_task"] == {"a=b": 0.3}
    assert folder.load().winner_spec(["seed=3"]).seed == 3, "the changes of the user come last"


def test_a_notebook_shows_results_in_a_line_and_as_a_table(folder: Folder) -> None:
    folder.trial([0.2, 0.4, 0.3], params={"method.temperature": 0.5})
    results = folder.load()
    winner = "<trial-0000: finished, epoch 3 of 3, value 0.3, {'method.temperature': 0.5}>"
    assert repr(results.winner) == winner
    assert repr(results) == f"<shoes-1: 1 of 4 trials started, winner {winner}>"
    table = results._repr_html_()
    assert "<th>value</th>" in table
    assert "loss" not in table
    assert repr(results.spec) == "RunSpec(name='shoes')"


@pytest.mark.parametrize(
    ("status", "tags", "expected", "reason"),
    [
        (None, {}, "RUNNING", None),
        ("FINISHED", {}, "FINISHED", None),
        ("KILLED", PRUNED, "PRUNED", None),
        ("KILLED", INTERRUPTED, "INTERRUPTED", None),
        ("FAILED", {"mtcon.reason": "out of memory"}, "FAILED", "out of memory"),
    ],
)
def test_status(
    folder: Folder, status: str | None, tags: dict[str, str], expected: str, reason: str | None
) -> None:
    spool = folder.trial([0.2], status, tags=tags)
    assert (folder.last().status, folder.last().reason) == (expected, reason)
    spool.append(Reopened())
    assert (folder.last().status, folder.last().reason) == ("RUNNING", None)


def test_value_is_the_last_probe_and_finite(folder: Folder) -> None:
    folder.trial([])
    assert (folder.last().value, folder.last().last_epoch) == (None, 0)
    spool = folder.trial([0.5, 0.6], None)
    spool.append(Reported(epoch=3, metrics={"loss": 1.0}))  # an epoch without a probe
    assert folder.last().value == 0.6
    folder.trial([0.5, 0.5, math.nan])
    assert (folder.last().value, folder.last().full_budget) == (None, False)


def test_the_time_of_a_trial_is_the_sum_of_its_epochs(folder: Folder) -> None:
    """Without the time at a rung and after the end."""
    spool = folder.trial([], None)
    for epoch, seconds in ((1, 2.0), (2, 1.5), (3, 4.0)):
        if epoch == 3:
            spool.append(Reopened())
        spool.append(Reported(epoch=epoch, metrics={"loss": 1.0}, seconds=seconds))
    assert folder.last().seconds == 7.5


def test_ranked_best_first(folder: Folder) -> None:
    folder.trial([0.9, 0.9], "FAILED")  # 0
    folder.trial([0.8], "KILLED", tags=PRUNED)  # 1
    folder.trial([0.1, 0.2, 0.5])  # 2
    folder.trial([0.95], None)  # 3
    folder.trial([0.1, 0.2, 0.6])  # 4
    folder.trial([0.85], "KILLED", tags=PRUNED)  # 5
    folder.trial([], "FAILED")  # 6
    folder.trial([0.1, 0.2, 0.6])  # 7
    results = folder.load()
    assert [t.number for t in results.ranked()] == [4, 7, 2, 5, 1, 3, 0, 6]
    assert results.required_winner().number == 4


def test_only_a_trial_with_its_full_budget_can_win(folder: Folder) -> None:
    folder.trial([0.9, 0.9], "KILLED", tags=PRUNED)
    folder.trial([0.9, 0.9, 0.9], "FAILED")
    assert folder.load().winner is None
    folder.trial([0.1, 0.2, 0.3], "KILLED", tags=INTERRUPTED)
    assert folder.load().required_winner().number == 2, "it was killed after its last epoch"


def test_a_trial_that_ended_at_a_plateau_can_win(folder: Folder) -> None:
    """Without `train.patience` it has lost epochs of its event log."""
    folder.trial([0.1, 0.2, 0.3])
    folder.trial([0.6, 0.5])
    folder.trial([0.9, 0.9], "KILLED", tags=INTERRUPTED)
    assert [t.full_budget for t in folder.load().trials] == [True, False, False]
    searched = "search: {space: {train.patience: {grid: [1, 2]}}, sampler: grid}"
    for patience in ("train: {patience: 1}", searched):
        (folder.path / "spec.yaml").write_text(f"name: shoes\n{patience}\n")
        results = folder.load()
        assert [t.full_budget for t in results.trials] == [True, True, False]
        assert results.winner is results.trials[1]
        assert results.lost == ()


def test_folders_that_are_no_sweep_are_named(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"nowhere has no spec.yaml of a sweep.*mtcon-ray list"):
        load_sweep(tmp_path / "nowhere")


def test_a_sweep_that_has_just_begun(tmp_path: Path) -> None:
    """The sweep has no plan, and one trial whose first line is incomplete."""
    folder = Folder(tmp_path / "new")
    (folder.path / "plan.json").unlink()
    (folder.path / "events.jsonl").write_text('{"kind": "st')
    results = folder.load()
    assert (results.plan, results.trials, results.winner) == (None, (), None)
