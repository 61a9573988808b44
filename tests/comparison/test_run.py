"""A comparison on a real Ray: each system is trained once, also after a repetition or a failure."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call, patch

import pytest
import ray

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import event_file, sweep_folder
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.cluster import connection
from mtcon_ray.cluster.connection import connected, sweep_environment
from mtcon_ray.cluster.ray_start import start_local_ray
from mtcon_ray.comparison.comparison_spec import Comparison
from mtcon_ray.comparison.run import run_comparison
from mtcon_ray.comparison.tuning import again_spec
from mtcon_ray.errors import ResourceError
from mtcon_ray.records.events import Ended, Reported, Started
from mtcon_ray.records.folder import claimed
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.tracking.provenance import FINGERPRINT
from tests import specs
from tests.comparison.conftest import Load
from tests.recorded import plan_with
from tests.run_log import RunLog
from tests.some import some

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]

BASE: dict[str, Any] = {
    **specs.TINY,
    # One thread: two that wait for each other on a busy machine make small probes ten times slower.
    "resources": {"cpus": 1},
}
ONE = {"A": {"method": "mtcon"}}
GO = nullcontext(Callbacks())


@pytest.mark.usefixtures("undrawn")
def test_systems_are_trained_once_and_a_failure_is_told(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = {"lr": 1000.0, "weight_decay": 1.0, "warmup_epochs": 0, "epochs": 8}
    changes = {f"train.{field}": value for field, value in train.items()}
    systems = {
        "good": {"method": "mtcon", "seeds": 2}, "wild": {"method": "mtcon", "changes": changes},
    }  # fmt: skip
    comparison, watch = load(base=BASE, systems=systems), Mock(return_value=GO)
    start = Mock(wraps=start_local_ray)
    monkeypatch.setattr(connection, "start_local_ray", start)
    root = tmp_path / "root"
    rows, folder = run_comparison(comparison, root=root, watch=watch)
    start.assert_called_once()
    assert not ray.is_initialized()
    good, wild = rows
    assert [t.seed for t in good.finished] == [0, 1]
    assert not wild.finished
    assert "| good | 2 | 32 | 0." in (folder / "table.md").read_text()
    wild_line = (folder / "table.md").read_text().splitlines()[3]
    assert wild_line.startswith("| wild | 0 | — | failed: ")
    assert "be finite, got inf or nan" in wild_line
    log = event_file(root / "sweeps" / "few-good")
    events = log.read_bytes()
    with claimed(root / "sweeps" / "few-wild"):  # as if another process resumed it
        again, _ = run_comparison(comparison, root=root, watch=watch)
    assert watch.call_args_list == [call("good"), call("wild"), call("wild")]
    assert again[0].finished == good.finished
    assert log.read_bytes() == events
    assert "is already running" in again[1].why


def write_tuning(root: Path, spec: RunSpec, values: dict[float, float]) -> None:
    """Writes a finished sweep of tuning, as if it had been trained: value by learning rate."""
    folder = root / "sweeps" / spec.name
    folder.mkdir(parents=True)
    write_beginnings(folder, spec, plan_with())
    ended = Ended(status="FINISHED", tags={})
    RunLog(folder).append(Started(params={}, tags={}))
    for i, (lr, value) in enumerate(values.items()):
        log = RunLog(folder, f"trial-{i:04d}")
        params = {"train.lr": lr, "views.crop_scale": "[0.5, 1.0]"}
        log.append(Started(params=params, tags={"mtcon.epochs": "1", "mtcon.seed": "0"}))
        log.append(Reported(epoch=1, metrics={"val/accuracy": value}))
        log.append(ended)
    RunLog(folder).append(ended)


def test_a_stopped_comparison_says_how_it_goes_on(load: Load, tmp_path: Path) -> None:
    comparison = load(base=BASE, systems=ONE)
    stopped = Interrupted("stopped by SIGHUP; to continue: repeat it with --name A --resume")
    with pytest.raises(Interrupted, match=r"^stopped by SIGHUP; .*continue: repeat the command$"):
        run_comparison(comparison, root=tmp_path / "root", watch=Mock(side_effect=stopped))


@pytest.mark.soak
def test_a_tuned_system_resumes_at_the_stage_where_it_was(load: Load, tmp_path: Path) -> None:
    """The best two of three configurations are trained again, and the winner with a new seed.

    The first sweep is only written, because each start of a Ray takes ten seconds.
    """
    root = tmp_path / "root"
    space = {"train.lr": {"choice": [0.01, 0.1, 0.2]}, "views.crop_scale": {"choice": [[0.5, 1.0]]}}
    tune = {"epochs": 1, "num_trials": 3, "again": 2, "seeds": 1, "space": space}
    comparison = load(base=BASE, systems=ONE, tune=tune)
    write_tuning(root, comparison.tuning["A"].first, {0.01: 0.3, 0.1: 0.5, 0.2: 0.4})

    watch = Mock(side_effect=[GO, Interrupted("stopped by SIGTERM"), GO])
    with connected(tmp_path / "ray.log", sweep_environment(1)):  # one start of Ray for both
        with pytest.raises(Interrupted):
            run_comparison(comparison, root=root, watch=watch)
        [row], folder = run_comparison(comparison, root=root, watch=watch)
    assert watch.call_args_list == [call("A: the best again"), call("A"), call("A")]
    again, final = row.tuned[1], row.finished
    assert [t.params["train.lr"] for t in again.trials] == [0.1, 0.2]
    assert [(t.seed, t.last_epoch) for t in again.trials] == [(0, 2)] * 2
    assert [(t.seed, t.last_epoch) for t in final] == [(1, 2)]
    spec = some(row.results).spec
    assert spec.train.lr == again.required_winner().params["train.lr"]
    assert spec.views.crop_scale == (0.5, 1.0)
    assert final[0].seconds > 0
    assert "| A | 3 | 3 + 4 + 2 | " in (folder / "table.md").read_text()
    assert (folder / "tuning.csv").exists()
    run_comparison(comparison, root=root, watch=watch)
    assert watch.call_count == 3


def test_a_finished_comparison_needs_no_resources(load: Load, tmp_path: Path) -> None:
    """It was trained on a machine with more CPUs; only what is left must fit this one."""
    root = tmp_path / "root"
    space = {"train.lr": {"choice": [0.1, 0.2]}, "views.crop_scale": {"choice": [[0.5, 1.0]]}}
    tune = {"epochs": 1, "num_trials": 2, "again": 2, "seeds": 1, "space": space}
    systems = {**ONE, "B": {"method": "xent", "tuned": False}}
    sections = {"base": BASE | {"resources": {"cpus": 4096}}, "systems": systems, "tune": tune}
    comparison = load(**sections)
    tuning = comparison.tuning["A"]
    values = {0.1: 0.5, 0.2: 0.4}
    # Of a version whose tuning had test scores.
    write_tuning(root, with_values(tuning.first, {"evaluate.test": True}), values)
    again = again_spec(some(tuning.again), results(root, tuning.first))
    write_tuning(root, again, values)
    winner = results(root, again).required_winner()
    write_tuning(root, with_values(comparison.specs["A"], winner.params), {0.1: 0.6})
    write_tuning(root, comparison.specs["B"], {0.1: 0.3})

    def compared(comparison: Comparison = comparison) -> list[int]:
        rows, _ = run_comparison(comparison, root=root, watch=Mock(return_value=GO))
        return [len(row.finished) for row in rows]

    assert compared() == compared(load("search.max_failures=7", **sections)) == [1, 1]
    for spec in (comparison.specs["B"], again, comparison.specs["A"]):
        log = event_file(sweep_folder(root, spec.name))
        log.rename(log.with_suffix(".away"))
        with pytest.raises(ResourceError, match="must fit some node"):
            compared()
        log.with_suffix(".away").rename(log)
    comparison = load("resources.cpus=1", **sections)
    assert compared(comparison) == [1, 1]
    prints = Mock(side_effect=[{FINGERPRINT: each} for each in "aaab"])
    with patch("mtcon_ray.comparison.run.first_tags", prints):
        rows, _ = run_comparison(comparison, root=root, watch=Mock(return_value=GO))
    assert rows[0].finished
    assert "are not those of the rows above; restore the data" in str(rows[1].reason)
    plan = sweep_folder(root, comparison.specs["B"].name) / "plan.json"
    plan.write_text(plan.read_text().replace('"evaluation": ', '"evaluation": 9'))
    rows, _ = run_comparison(comparison, root=root, watch=Mock(return_value=GO))
    assert "was begun with other probes" in str(rows[1].reason)
    (second := RunLog(sweep_folder(root, again.name), "trial-0001")).remove()
    with pytest.raises(ResourceError, match="must fit some node"):
        compared()  # search.max_hours were over before the second trial
    second.append(Started(params={}, tags={"mtcon.epochs": "1", "mtcon.seed": "0"}))
    with pytest.raises(ResourceError, match="must fit some node"):
        compared()


def results(root: Path, spec: RunSpec) -> SweepResults:
    return load_sweep(sweep_folder(root, spec.name))
