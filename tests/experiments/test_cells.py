"""Cells of the matrix: names, specs, and the images that stand in for a paper's."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.ccn_table1 import OWN_DATA
from experiments.reproduction.budgets import BUDGETS
from experiments.reproduction.cells import SYSTEMS, Cell, Setting
from experiments.reproduction.data import DATA_SETS, DataChoice, MissingImagesError, subset
from experiments.reproduction.experiment import Trained
from experiments.reproduction.running import VIEWS_NOTE, disclosures
from mtcon_ray.comparison.row import Row
from mtcon_ray.spec.recipes import RECIPES
from tests.experiments.pretended import setting
from tests.some import some


def cell_of(name: str) -> Cell:
    if name.startswith("multisupcon"):
        return Cell("celeba_64", name)
    return Cell("zappos50k", f"{name}:closure" if SYSTEMS[name].per_label else name)


@pytest.mark.parametrize("budget", ["smoke", "small"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_a_valid_spec_at_a_budget(budget: str, name: str, tmp_path: Path) -> None:
    spec = setting(tmp_path, budget).spec_of(cell_of(name))
    assert spec.search.repeats == (BUDGETS[budget].seeds if SYSTEMS[name].has_seeds else 1)
    assert spec.search.num_configurations == 1


def test_labels_are_those_of_the_images_that_stand_in(tmp_path: Path) -> None:
    spec = setting(tmp_path).spec_of(Cell("zappos50k", "supcon:closure", noise=(("closure", 0.4),)))
    assert (spec.data.tasks, spec.data.held_out) == (("shape", "texture", "colour"), ("tilt",))
    assert spec.method.model_dump()["task"] == "texture"
    assert spec.data.label_noise == {"texture": 0.4}
    assert setting(tmp_path).source("zappos50k").name_label("closure") == "closure (texture)"


def test_names_differ_by_all_that_changes_the_training(tmp_path: Path) -> None:
    cells = [
        Cell("medic", "mtcon"),
        Cell("medic", "mtcon", "informative"),
        Cell("medic", "mtcon", noise=(("informative", 0.2),)),
        Cell("medic", "mtcon", changes=(("method.temperature", 0.05),)),
    ]
    places = setting(tmp_path), setting(tmp_path, "small")
    assert setting(tmp_path, "small", "train.lr=0.07").tuning_of(cells[0]) is None
    assert len({where.name_of(cell) for cell in cells for where in places}) == 8


def test_a_network_of_one_label_is_tuned_by_this_label_alone(tmp_path: Path) -> None:
    where = setting(tmp_path, "small")
    for system, objective in (("supcon:closure", "texture"), ("mtcon", None)):
        cell = Cell("zappos50k", system)
        tuning = some(where.tuning_of(cell)).first.search
        assert (tuning.objective, tuning.num_planned_trials) == (objective, 5), "one seed each"
        assert where.spec_of(cell).search.objective == objective


def test_missing_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingImagesError, match=r"fashion_products/labels\.csv below"):
        setting(tmp_path, only="photos").source("medic")
    with pytest.raises(MissingImagesError, match="MEDIC needs"):
        setting(tmp_path, only="paper").source("medic")


def test_photographs_are_read_in_part(tmp_path: Path) -> None:
    shoes = tmp_path / "photos" / "fashion_shoes" / "labels.csv"
    shoes.parent.mkdir(parents=True)
    columns = {"image": [f"images/{i}.jpg" for i in range(700)], "split": ["train"] * 700}
    pd.DataFrame(columns).to_csv(shoes, index=False)
    data = setting(tmp_path, only="photos").source("zappos50k").data
    table = pd.read_csv(data["csv"])
    assert len(table) == BUDGETS["smoke"].num_items == 500
    assert table["image"].is_unique
    assert subset(shoes, 500, tmp_path / "subsets") == Path(data["csv"])
    assert subset(shoes, 700, tmp_path / "subsets") == shoes
    assert setting(tmp_path, "small", only="photos").source("zappos50k").data["csv"] == str(shoes)
    cell, row = Cell("zappos50k", "simclr"), Row("simclr", None)
    source = setting(tmp_path, only="photos").source("zappos50k")
    assert disclosures({cell: Trained(cell, source, row)}) == [VIEWS_NOTE]


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_paper_budget_has_the_recipe_of_each_data_set(name: str, tmp_path: Path) -> None:
    """It reads the official download, with the labels of the paper."""
    data_set = DATA_SETS[name]
    (tmp_path / data_set.kind).mkdir()
    where = Setting(BUDGETS["paper"], DataChoice("paper", None, tmp_path, tmp_path), tmp_path)
    spec = where.spec_of(Cell(name, "simclr"))
    assert (spec.data.kind, spec.method.name) == (data_set.kind, "simclr")
    assert spec.train.epochs == RECIPES[data_set.kind]["train.epochs"]
    labels = tuple(data_set.columns.get(label, label) for label in data_set.labels)
    assert (*spec.data.tasks, *spec.data.held_out) == labels


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_paper_budget_has_the_recipe_of_each_system(name: str, tmp_path: Path) -> None:
    """Views of an image, batch, selected epoch, and augmentations of the views."""
    spec = setting(tmp_path, "paper").spec_of(cell_of(name))
    views, selected, probe = spec.views, spec.evaluate.select, spec.evaluate.probe
    found = views.num_views, spec.train.batch_size, selected, views.jitter, views.grayscale
    by_method = {
        "xent": (1, 64, "best", 0.8, 0.2),
        "csn": (2, 256, "best", 0, 0),
        "scenet": (2, 96, "best", 0, 0),
    }
    assert found == by_method.get(spec.method.name, (2, found[1], "last", *found[3:]))
    assert (views.crop_scale == (1, 1)) == (SYSTEMS[name].family == "triplet")
    assert getattr(spec.method, "tau_min", 1e-5) == 1e-5
    second_stage = {"epochs": 51, "batch_size": 256, "momentum": 0.9, "weight_decay": 0}.items()
    assert (second_stage <= probe.model_dump().items()) == name.startswith("multisupcon")


@pytest.mark.parametrize(("name", "D"), [("mtcon-equal", 128), ("csn", None), ("untrained", None)])
def test_ccn_has_its_embedding_at_the_paper_budget(name: str, D: int, tmp_path: Path) -> None:
    (tmp_path / DATA_SETS["zappos50k"].kind).mkdir()
    where = Setting(BUDGETS["paper"], DataChoice("paper", None, tmp_path, tmp_path), tmp_path)
    assert where.spec_of(Cell("zappos50k", name)).model.embedding_dim is None
    assert where.spec_of(Cell("zappos50k", name, own_data=OWN_DATA)).model.embedding_dim == D
