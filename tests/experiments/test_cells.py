"""Cells of the matrix: names, specs, and the images that stand in for a paper's."""

from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from experiments.reproduction.budgets import BUDGETS
from experiments.reproduction.cells import SYSTEMS, Cell, Setting
from experiments.reproduction.data import (
    DATA_SETS,
    DataChoice,
    MissingImagesError,
    subset,
)
from experiments.reproduction.experiment import Experiment
from mtcon_ray.errors import SpecError
from tests.experiments.pretended import setting


@pytest.mark.parametrize("budget", ["smoke", "small"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_a_valid_spec_at_each_budget(
    budget: str, name: str, tmp_path: Path
) -> None:
    if name.startswith("multisupcon"):
        cell = Cell("celeba_64", name)
    else:
        cell = Cell("zappos50k", f"{name}:closure" if SYSTEMS[name].per_label else name)
    spec = setting(tmp_path, budget).spec_of(cell)
    assert spec.search.repeats == (BUDGETS[budget].seeds if SYSTEMS[name].has_seeds else 1)
    assert spec.search.num_configurations == 1


def test_labels_are_those_of_the_images_that_stand_in(tmp_path: Path) -> None:
    spec = setting(tmp_path).spec_of(Cell("zappos50k", "supcon:closure", noise=(("closure", 0.4),)))
    assert spec.data.tasks == ("shape", "texture", "colour")
    assert spec.data.held_out == ("tilt",)
    assert spec.method.model_dump()["task"] == "texture"
    assert spec.data.label_noise == {"texture": 0.4}
    source = setting(tmp_path).source("zappos50k")
    assert source.name_label("closure") == "closure (texture)"


def test_a_task_can_be_held_out(tmp_path: Path) -> None:
    cell = Cell("medic", "xent-multi", "informative")
    spec = setting(tmp_path).spec_of(cell)
    assert spec.data.tasks == ("tilt", "shape", "colour")
    assert spec.data.held_out == ("texture",)


def test_names_differ_by_all_that_changes_the_training(tmp_path: Path) -> None:
    cells = [
        Cell("medic", "mtcon"),
        Cell("medic", "mtcon", "informative"),
        Cell("medic", "mtcon-equal"),
        Cell("medic", "mtcon", noise=(("informative", 0.2),)),
        Cell("medic", "mtcon", changes=(("method.temperature", 0.05),)),
        Cell("cub200_2011", "mtcon"),
    ]
    small = setting(tmp_path, "small")
    names = [where.name_of(cell) for cell in cells for where in (setting(tmp_path), small)]
    assert len(set(names)) == len(names) == 12
    assert names[9] == "small-synthetic-medic-mtcon-temperature-0.05"
    assert setting(tmp_path).spec_of(cells[4]).method.model_dump()["temperature"] == 0.05


def test_long_names_are_cut_and_stay_different(tmp_path: Path) -> None:
    where = setting(tmp_path)
    cells = [
        Cell("medic", "mtcon-calibrated", "damage_severity", (("disaster_types", share),))
        for share in (0.25, 0.75)
    ]
    names = [where.spec_of(cell).name for cell in cells]
    assert [len(name) for name in names] == [76, 76]
    assert names[0] != names[1]
    assert names[0].startswith("smoke-synthetic-medic-no-damage-severity-mtcon-calibrated-noise-")


def test_a_short_training_is_probed_at_its_end(tmp_path: Path) -> None:
    short, long = (
        setting(tmp_path, "small").spec_of(Cell("medic", "mtcon", changes=(("train.epochs", n),)))
        for n in (3, 6)
    )
    assert (short.train.epochs, short.evaluate.every) == (3, 3)
    assert (long.train.epochs, long.evaluate.every) == (6, 4)


def test_each_number_of_augmentations_adds_to_the_one_before(tmp_path: Path) -> None:
    one, three, five = (
        setting(tmp_path).spec_of(Cell("stl10", f"amcl-{count}")).views for count in (1, 3, 5)
    )
    assert {view.crop_scale for view in (one, three, five)} == {(0.08, 1.0)}
    assert (one.blur, one.grayscale, one.jitter, one.flip) == (0, 0, 0, 0)
    assert (three.blur, three.grayscale, three.jitter, three.flip) == (0.5, 0.2, 0, 0)
    assert (five.blur, five.grayscale, five.jitter, five.flip) == (0.5, 0.2, 0.8, 0.5)


def test_an_override_changes_every_cell_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    cell = Cell("zappos50k", "mtcon")
    assert setting(tmp_path, "smoke", "train.epochs=3").spec_of(cell).train.epochs == 3
    with pytest.raises(
        SpecError, match=r"zappos50k, MTCon, learned weights: train\.epoch: unknown"
    ):
        setting(tmp_path, "smoke", "train.epoch=3").spec_of(cell)


def test_missing_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingImagesError, match=r"fashion_products/labels\.csv below"):
        setting(tmp_path, only="photos").source("medic")
    with pytest.raises(MissingImagesError, match="MEDIC needs"):
        setting(tmp_path, only="paper").source("medic")


@pytest.fixture
def shoes(tmp_path: Path) -> Path:
    folder = tmp_path / "photos" / "fashion_shoes"
    folder.mkdir(parents=True)
    columns = {"image": [f"images/{i}.jpg" for i in range(700)], "split": ["train"] * 700}
    pd.DataFrame(columns).to_csv(folder / "labels.csv", index=False)
    return folder / "labels.csv"


def test_photographs_are_read_in_part(shoes: Path, tmp_path: Path) -> None:
    data = setting(tmp_path, only="photos").source("zappos50k").data
    table = pd.read_csv(data["csv"])
    assert len(table) == BUDGETS["smoke"].num_items == 500
    assert table["image"].is_unique
    assert subset(shoes, 500, tmp_path / "subsets") == Path(data["csv"])
    assert subset(shoes, 700, tmp_path / "subsets") == shoes
    whole = setting(tmp_path, "small", only="photos").source("zappos50k").data
    assert whole["csv"] == str(shoes)


def test_the_best_images_that_are_there_are_used(shoes: Path, tmp_path: Path) -> None:
    choice = DataChoice(None, tmp_path / "photos", None, tmp_path / "subsets")
    assert choice.source("zappos50k", None).choice == "photos"
    assert choice.source("medic", None).choice == "synthetic"


def test_colours_of_photographs_stay_except_for_self_supervised_systems(
    shoes: Path, tmp_path: Path
) -> None:
    photos = setting(tmp_path, only="photos")
    assert photos.spec_of(Cell("zappos50k", "mtcon")).views.hue == 0.02
    assert photos.spec_of(Cell("zappos50k", "simclr")).views.hue == 0.1
    assert setting(tmp_path).spec_of(Cell("zappos50k", "mtcon")).views.hue == 0.1


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_label_has_a_column_in_each_stand_in(name: str) -> None:
    data_set = DATA_SETS[name]
    for stand_in in (data_set.photos, data_set.synthetic):
        assert set(stand_in.columns) == set(data_set.labels)
        assert len(set(stand_in.columns.values())) == len(data_set.labels)


def of_paper(root: Path, name: str) -> Setting:
    """Returns the paper budget on a folder for a data set's official download."""
    (root / DATA_SETS[name].kind).mkdir()
    return Setting(BUDGETS["paper"], DataChoice("paper", None, root, root / "subsets"), root)


@pytest.mark.parametrize(
    ("name", "size", "encoder", "head_dim", "epochs"),
    [
        ("zappos50k", 112, "resnet18", 32, 200),
        ("medic", 224, "resnet50", 64, 200),
        ("cub200_2011", 224, "resnet50", 64, 200),
        ("celeba_64", 64, "resnet50", 128, 80),
        ("stl10", 96, "resnet18", 128, 1000),
        ("cifar10", 32, "resnet18", 128, 1000),
    ],
)
def test_the_paper_budget_has_the_recipe_of_each_data_set(
    name: str, size: int, encoder: str, head_dim: int, epochs: int, tmp_path: Path
) -> None:
    spec = of_paper(tmp_path, name).spec_of(Cell(name, "simclr"))
    assert (spec.data.kind, spec.method.name) == (DATA_SETS[name].kind, "simclr")
    assert (spec.views.size, spec.model.encoder.name) == (size, encoder)
    assert (spec.model.head_dim, spec.train.epochs) == (head_dim, epochs)
    labels = (*spec.data.tasks, *spec.data.held_out)
    assert labels == tuple(
        DATA_SETS[name].columns.get(label, label) for label in DATA_SETS[name].labels
    )


def test_ccn_has_its_own_classes_of_closure_on_the_papers_images(tmp_path: Path) -> None:
    ccn = import_module("experiments.ccn_table1").EXPERIMENT
    mscon = import_module("experiments.mscon_table1").EXPERIMENT
    stand_in, papers = setting(tmp_path), of_paper(tmp_path, "zappos50k")

    def closures(where: Setting, experiment: Experiment) -> set[object]:
        specs = [where.spec_of(cell) for cell in experiment.cells(where)]
        return {spec.data.model_dump().get("closures") for spec in specs}

    assert closures(papers, ccn) == {"ccn"}
    assert closures(papers, mscon) == {"mscon"}
    assert closures(stand_in, ccn) == {None}

    def shared(where: Setting) -> set[str]:
        of_ccn, of_mscon = ({where.name_of(c) for c in e.cells(where)} for e in (ccn, mscon))
        return of_ccn & of_mscon

    assert shared(stand_in)
    assert not shared(papers)


@pytest.mark.parametrize("name", [n for n in SYSTEMS if not n.startswith("multisupcon")])
def test_every_system_has_a_valid_spec_of_the_papers(name: str, tmp_path: Path) -> None:
    cell = Cell("zappos50k", f"{name}:closure" if SYSTEMS[name].per_label else name)
    spec = of_paper(tmp_path, "zappos50k").spec_of(cell)
    assert spec.search.repeats == (3 if SYSTEMS[name].has_seeds else 1)
    rates = {"contrastive": 0.05, "self_supervised": 0.05, "xent": 0.01, "triplet": 5e-5}
    family = SYSTEMS[name].family
    assert spec.train.lr == rates.get(family, spec.train.lr)


@pytest.mark.parametrize(
    ("system", "epochs"), [("mtcon", 4), ("xent-multi", 4), ("csn", 2), ("untrained", None)]
)
def test_each_system_chooses_among_as_many_rates(
    system: str, epochs: int | None, tmp_path: Path
) -> None:
    """On val, with a seed that its trainings do not have."""
    where, cell = setting(tmp_path, "small"), Cell("zappos50k", system)
    tuned = where.tuning_of(cell)
    assert (tuned is None) == (epochs is None)
    if tuned:
        assert tuned.again is None
        assert tuned.first.train.epochs == tuned.first.evaluate.every == epochs
        assert tuned.first.search.num_configurations == 4
        assert tuned.first.seed < where.spec_of(cell).seed
    assert setting(tmp_path, "smoke").tuning_of(cell) is None
