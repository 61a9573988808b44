"""Folders of sweeps: names, locks, and the changes that a resume accepts."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.paths import SPEC_FILE, event_file, sweep_folder
from mtcon_ray.data.disk import partial_of
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Started
from mtcon_ray.records.folder import check_folder, claimed
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_scheduler, with_values
from tests import specs
from tests.recorded import plan_with


@pytest.fixture
def spec() -> RunSpec:
    search = {"space": {"method.temperature": {"uniform": [0.1, 1]}}, "num_trials": 4}
    return parse_spec({**specs.SHORT, "name": "shoes", "search": search})


def begin(root: Path, spec: RunSpec, name: str) -> Path:
    folder = sweep_folder(root, name)
    with claimed(folder):
        write_beginnings(folder, spec, plan_with())
    return folder


def check(folder: Path, spec: RunSpec, *, resume: bool = True) -> None:
    check_folder(folder, spec, resume=resume, hint=lambda f: f"resume {f.name}")


def test_a_taken_name_is_refused_with_the_line_that_resumes(tmp_path: Path, spec: RunSpec) -> None:
    folder = begin(tmp_path, spec, "mine")
    ways = "to continue it: resume mine; for a new one: give another --name"
    with pytest.raises(SweepError, match=rf"exists already .* {ways}$"):
        check(folder, spec, resume=False)


def test_a_resume_finds_its_sweep_and_mixes_no_probes(tmp_path: Path, spec: RunSpec) -> None:
    """It continues no accuracies of other probes."""
    folder = begin(tmp_path, spec, "shoes-7")
    check(folder, spec)
    with pytest.raises(SweepError, match=r"no sweep 'shoes-8' .* did you mean 'shoes-7'\?"):
        check(folder.with_name("shoes-8"), spec)
    (folder / "plan.json").write_text(plan_with(evaluation=1).model_dump_json())
    with pytest.raises(SweepError, match=r"begun with other probes.*start again with another"):
        check(folder, spec)
    values = {"data.tasks": ["attributes"], "method": {"name": "multisupcon"}}
    for each, name in ((spec, "classes"), (with_values(spec, values), "sets")):
        folder = begin(tmp_path, each, name)
        (folder / "plan.json").write_text(plan_with(evaluation=2).model_dump_json())
        with pytest.raises(SweepError, match="other probes") if name == "sets" else nullcontext():
            check(folder, each)


def test_a_copy_under_another_name_is_not_resumed(tmp_path: Path, spec: RunSpec) -> None:
    """Both would write to the same runs in MLflow."""
    folder = begin(tmp_path, spec, "first")
    check(folder, spec)  # without an event it has no runs yet
    EventLog(event_file(folder)).append(Started(params={}, tags={"mtcon.sweep": "first"}))
    check(folder, spec)
    copy = shutil.copytree(folder, folder.with_name("copy"))
    with pytest.raises(SweepError, match=r"^sweep 'copy' was begun as 'first'"):
        check(copy, spec)


def test_a_resume_may_change_how_a_sweep_is_run(tmp_path: Path, spec: RunSpec) -> None:
    values = {
        "search.num_trials": 9, "search.max_hours": 1.5, "search.stall_minutes": 10,
        "resources.cpus": 2, "tracking.offline": False, "storage.root": "/elsewhere",
        "evaluate.test": False,
    }  # fmt: skip
    check(begin(tmp_path, spec, "mine"), with_values(spec, values))


def test_a_sweep_keeps_its_scheduler_when_it_grows(tmp_path: Path, spec: RunSpec) -> None:
    """The default was chosen at the start, or the spec named a scheduler."""
    grown = with_values(spec, {"search.num_trials": 40})
    for name, scheduler in (("new", None), ("old", {"name": "asha"})):
        given = with_scheduler(with_values(spec, {"search.scheduler": scheduler}))
        check(folder := begin(tmp_path, given, name), grown)
    named = with_values(grown, {"search.scheduler": {"name": "halving"}})
    with pytest.raises(SweepError, match=r"search\.scheduler\.name: 'asha' then, 'halving' now"):
        check(folder, named)


def test_a_resume_may_not_change_what_a_trial_is(tmp_path: Path, spec: RunSpec) -> None:
    values: dict[str, Any] = {"search.num_trials": 3, "train.lr": 0.5, "seed": 1}
    values["search.space.train.weight_decay"] = {"uniform": [0.1, 1]}
    values["search.objective"] = "shape"
    with pytest.raises(SweepError, match="the limits of search may change") as error:
        check(begin(tmp_path, spec, "mine"), with_values(spec, values))
    told = str(error.value)
    for shown in ("num_trials: 4 then, 3 now", "lr: 0.2 then, 0.5 now", "seed: 0 then, 1 now"):
        assert shown in told
    assert "search.space.train.weight_decay" in told
    assert "search.objective: None then, 'shape' now" in told


@pytest.mark.parametrize(("values", "grows"), [([0.1, 1, 3], True), ([0.1, 3], False)])
def test_a_grid_may_grow(tmp_path: Path, spec: RunSpec, values: list[float], grows: bool) -> None:
    space, search = "search.space.method.temperature", {"search.sampler": "grid"}
    given = with_values(spec, {**search, "search.num_trials": None, space: {"grid": [0.1, 1]}})
    refusal = pytest.raises(SweepError, match=r"With search\.start_from it learns from the trials")
    with nullcontext() if grows else refusal:
        check(begin(tmp_path, given, "mine"), with_values(given, {space: {"grid": values}}))


def test_a_folder_in_which_no_sweep_has_begun_goes_again(tmp_path: Path, spec: RunSpec) -> None:
    """After a failed start of Ray the same command must not find a sweep of that name."""
    with pytest.raises(ZeroDivisionError), claimed(sweep_folder(tmp_path, "mine")):
        raise ZeroDivisionError
    assert not sweep_folder(tmp_path, "mine").exists()
    folder = begin(tmp_path, spec, "mine")
    with pytest.raises(ZeroDivisionError), claimed(folder):
        raise ZeroDivisionError
    assert (folder / "spec.yaml").exists()


def test_records_without_a_spec_are_not_removed_or_continued(tmp_path: Path, spec: RunSpec) -> None:
    """The records may be all that is left of a sweep, so they must be kept."""
    folder = sweep_folder(tmp_path / "my lab", "mine")
    folder.mkdir(parents=True)
    (folder / "events.jsonl").touch()
    for resume in (False, True):
        with pytest.raises(SweepError, match=r"no spec\.yaml; .* `mtcon-ray clean mine --root '/"):
            check(folder, spec, resume=resume)
    with pytest.raises(ZeroDivisionError), claimed(folder):
        raise ZeroDivisionError
    assert (folder / "events.jsonl").exists()


def test_a_folder_without_a_spec_is_no_sweep(tmp_path: Path, spec: RunSpec) -> None:
    """A kill between the creation of the folder and of the spec leaves such a folder."""
    folder = sweep_folder(tmp_path, "mine")
    (folder / "log").mkdir(parents=True)
    partial_of(folder / SPEC_FILE).write_text("half")
    with pytest.raises(SweepError, match=r"no sweep 'mine' under .* to resume$"):
        check(folder, spec)
    check(folder, spec, resume=False)
    check(begin(tmp_path, spec, "mine"), spec)
    assert not partial_of(folder / SPEC_FILE).exists()


def test_networks_without_an_event_log_are_not_trained_again(tmp_path: Path, spec: RunSpec) -> None:
    folder = begin(tmp_path, spec, "mine")
    (folder / "checkpoints" / "trial-0000").mkdir(parents=True)
    with pytest.raises(SweepError, match=r"has records but no events\.jsonl; restore that file"):
        check(folder, spec)
