"""Tests of the spec: valid and invalid fields, messages, and round trips."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.errors import SpecError
from mtcon_ray.spec.methods.supervised import MTConSpec
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, load_spec, parse_recorded, parse_spec
from mtcon_ray.spec.schedulers import ASHA

MINIMAL: dict[str, Any] = {"name": "x"}


SPACE: dict[str, Any] = {"space": {"train.lr": {"uniform": [0.1, 1]}}}


def load(folder: Path, text: str, *overrides: str) -> RunSpec:
    (folder / "spec.yaml").write_text(text)
    return load_spec(folder / "spec.yaml", overrides)


def test_a_plugin_s_section_need_not_call_the_common_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MTConSpec, "check", lambda *_: None)
    with pytest.raises(SpecError, match=r"data\.tasks must name a label for method mtcon"):
        parse_spec({**MINIMAL, "data": {"kind": "synthetic", "tasks": []}})


def test_a_recorded_spec_needs_a_kind_of_data() -> None:
    with pytest.raises(SpecError, match=r"data\.kind: is required"):
        parse_recorded({**MINIMAL, "data": {"tasks": ["a"]}}, "spec")


def test_early_stopping_needs_a_probe_before_the_last_rung() -> None:
    raw = {**MINIMAL, "evaluate": {"every": 30}}
    for scheduler in (None, "none"):
        spec = parse_spec({**raw, "search": {**SPACE, "scheduler": scheduler}})
        assert spec.scheduler.name == "none"
    told = r"evaluate\.every 30 leaves no probe .* last rung \(0\.5 of 20 epochs\); probe more"
    with pytest.raises(SpecError, match=told):
        parse_spec({**raw, "search": {**SPACE, "scheduler": "asha"}})


@pytest.mark.parametrize(("sampler", "space"), [("grid", {"grid": [1, 2, 3, 4]}), ("tpe", None)])
def test_a_number_of_trials_without_effect_is_refused(sampler: str, space: Any) -> None:
    search = {"sampler": sampler, "space": {"train.lr": space} if space else {}}
    most = 4 if space else 1
    parse_spec({**MINIMAL, "search": {**search, "num_trials": most}})
    raw = {**MINIMAL, "search": {**search, "num_trials": most + 1}}
    with pytest.raises(SpecError, match=rf"search\.num_trials must be at most {most}, .* or give"):
        parse_spec(raw)
    parse_recorded(raw)


def test_a_single_epoch_has_no_warm_up_unless_it_is_given() -> None:
    assert parse_spec({**MINIMAL, "train": {"epochs": 1}}).train.warmup == 0
    assert parse_spec({**MINIMAL, "train": {"epochs": 2}}).train.warmup == 1
    assert parse_spec(MINIMAL).train.warmup == 1


@pytest.mark.parametrize("epochs", [{"int": [1, 30]}, {"grid": [1, 8]}])
def test_a_warm_up_that_is_omitted_follows_from_a_trial_s_epochs(epochs: dict[str, Any]) -> None:
    search = {"space": {"train.epochs": epochs}}
    spec = parse_spec({**MINIMAL, "search": search})
    assert [spec.trial({"train.epochs": n}).train.warmup_epochs for n in (1, 8)] == [0, 1]
    told = "the field refuses 1 of .* warmup_epochs must be below epochs 1, got 1.0"
    with pytest.raises(SpecError, match=told):
        parse_spec({**MINIMAL, "search": search, "train": {"warmup_epochs": 1}})


def test_integers_between_the_bounds_must_be_accepted_too() -> None:
    def searching(low: int, high: int, **more: int) -> RunSpec:
        space = {"train.batch_size": {"int": [low, high], **more}}
        return parse_spec({**MINIMAL, "resources": {"workers": 2}, "search": {"space": space}})

    with pytest.raises(SpecError, match="the field refuses 17 of int"):
        searching(16, 64)
    assert searching(16, 64, step=2).search.space["train.batch_size"].tried == (16, 64, 18)


def test_a_bare_name_stands_for_its_section(tmp_path: Path) -> None:
    text = "{name: x, data: synthetic, model: {encoder: small}, search: {scheduler: asha}}"
    grace = "search.scheduler.grace=0.5"
    spec = load(tmp_path, text, "model.encoder.width=8", "method=simclr", grace)
    whole = {
        "data": {"kind": "synthetic"},
        "model": {"encoder": {"name": "small", "width": 8}},
        "method": {"name": "simclr"},
        "search": {"scheduler": {"name": "asha", "grace": 0.5}},
    }
    assert spec == parse_spec({**MINIMAL, **whole})
    assert load(tmp_path, text, "search.scheduler=null", grace).scheduler == ASHA(grace=0.5)
    with pytest.raises(SpecError, match=r"method\.name: unknown name 'supcn'.* 'supcon'\?"):
        load(tmp_path, text, "method=supcn")


def test_a_trial_has_its_values_its_seed_and_no_search() -> None:
    spec = parse_spec({**MINIMAL, "seed": 5, "search": SPACE})
    trial = spec.trial({"train.lr": 0.3, "data.label_noise.shape": 0.5}, repeat=2)
    assert (trial.train.lr, trial.seed, trial.search.space) == (0.3, 7, {})
    assert trial.data.label_noise == {"shape": 0.5}
    trial = spec.trial({"train.optimizer.beta2": 0.9, "train.optimizer": "adam"})
    assert trial.train.optimizer.model_dump()["beta2"] == 0.9, "not replaced by its section"
    scales, means = {"grid": [[0.2, 1.0], [0.5, 1]]}, {"choice": [[0.4, 0.4, 0.5]]}
    lists = {"views.crop_scale": scales, "views.mean": means}
    spec = parse_spec({**MINIMAL, "search": {"space": lists}})
    for scale in ("[0.5, 1]", [0.5, 1.0]):
        trial = spec.trial({"views.crop_scale": scale, "views.mean": "[0.4, 0.4, 0.5]"})
        assert (trial.views.crop_scale, trial.views.mean) == ((0.5, 1), (0.4, 0.4, 0.5))
    assert trial.data.seed == spec.data.seed


def test_overrides_are_yaml_values_at_paths(tmp_path: Path) -> None:
    text = "{name: x, data: synthetic, search: {space: {train.lr: {uniform: [0.1, 1]}}}}"
    given = (
        "train.lr=1e-3", "method.temperature=0.3", "data.tasks=[shape, colour]",
        "search.space.method.temperature={grid: [0.1, 0.2]}", "search.num_trials=null",
    )  # fmt: skip
    spec = load(tmp_path, text, *given)
    assert (spec.train.lr, spec.method.model_dump()["temperature"]) == (0.001, 0.3)
    assert spec.data.tasks == ("shape", "colour")
    assert set(spec.search.space) == {"method.temperature"}, "train.lr has one value now"
    text = text.replace("space", "num_trials: 9, first_points: [{train.lr: 0.5}], space")
    for override in ("train.lr=0.3", "train={lr: 0.3, optimizer: sgd}"):
        assert load(tmp_path, text, override).search.num_planned_trials == 1
    assert load(tmp_path, text, "train={epochs: 3}").search.num_planned_trials == 9
    choice = "train.optimizer: {choice: [sgd, adam]}"
    optimizers = text.replace("train.lr: {uniform: [0.1, 1]}", choice)
    found = load(tmp_path, optimizers.replace("train.lr: 0.5", ""), "train.optimizer.nesterov=true")
    assert found.search.space == {}, "a field below"
    broken = text.replace("{train.lr: 0.5}", "0.5")
    assert load(tmp_path, broken, "train.lr=0.3").search.first_points == ()
    changed = load(tmp_path, text, "storage.root=results")
    assert changed.storage.root == str(Path.cwd() / "results"), "whether it exists or not"
    for override, message in (
        ("train.lr", "--set must read path=value"),
        ("train.lrr=1", "did you mean 'lr'?"),
        ("name.x=1", "'name.x' names no field: name is not a section"),
        ("train.lr=[", "--set train.lr is not valid YAML"),
    ):
        with pytest.raises(SpecError, match=message):
            load(tmp_path, text, override)


NO_SPECS = [
    ("name: [", "not valid YAML"),
    ("name: a\ndata:\n \tkind: x", "indent line 3 with spaces in place of tabs"),
    ("- a", "must hold a mapping of sections, got list"),
    ("# " + "x" * 1_100_000, "a readable YAML file: .* at most 1,000,000 are read"),
]


@pytest.mark.parametrize(("text", "message"), NO_SPECS)
def test_a_file_that_is_no_spec_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load(tmp_path, text)


def test_relative_paths_start_at_the_specs_folder(tmp_path: Path) -> None:
    text = "{name: x, data: {kind: table, csv: a/labels.csv, images: /abs/images, tasks: [t]}}"
    data = dump_spec(load(tmp_path, text))["data"]
    assert data["csv"] == str(tmp_path / "a" / "labels.csv")
    assert data["images"] == "/abs/images"


def test_optimizers_and_schedules_are_searched_by_name() -> None:
    names = {"train.optimizer": {"choice": ["sgd", "adamw"]}}
    schedules = {"train.lr_schedule": {"choice": ["cosine", "one_cycle"]}}
    spec = parse_spec({**MINIMAL, "search": {"space": {**names, **schedules}}})
    trial = spec.trial({"train.optimizer": "adamw", "train.lr_schedule": "one_cycle"})
    assert (trial.train.optimizer.name, trial.train.warmup) == ("adamw", 0)
    assert dump_spec(trial)["train"]["optimizer"]["eps"] == 1e-8
    assert parse_spec(dump_spec(trial)) == trial
