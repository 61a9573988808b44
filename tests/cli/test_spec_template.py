"""The spec that `init` writes passes `validate`, also with a first user's changes."""

from pathlib import Path

import pytest
from click.testing import Result

from mtcon_ray.plan.local import this_machine
from mtcon_ray.spec.run_spec import load_spec
from tests.cli.conftest import run
from tests.data.archives import pack
from tests.plans import plan_of
from tests.tables import write_table

TABLE = "\n".join(["image,colour", *(f"{i}.png,{'red' if i % 2 else 'blue'}" for i in range(100))])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder with 120 pictures in `images`."""
    write_table(tmp_path)
    return tmp_path


def run_init(folder: Path, table: str, images: str = "images", name: str = "labels") -> Result:
    csv = folder / f"{name}.csv"
    csv.write_text(table, encoding="utf-8")
    return run("init", csv, folder / images, "-o", folder / "new.yaml")


def test_it_can_be_trained_for_a_single_epoch(folder: Path) -> None:
    run_init(folder, TABLE)
    changes = ["train.epochs=1", "train.batch_size=8", "search.repeats=3"]
    plan = plan_of(load_spec(folder / "new.yaml", changes), folder, this_machine())
    assert (plan.epochs, plan.rung_epochs) == (1, ())


@pytest.mark.parametrize(
    ("label", "expected"),
    [("colour", (0.02, 0.0)), ("Main Color", (0.02, 0.0)), ("kind", (0.1, 0.2))],
)
def test_labels_of_colour_keep_it(folder: Path, label: str, expected: tuple[float, float]) -> None:
    assert run_init(folder, TABLE.replace("colour", label)).exit_code == 0
    views = load_spec(folder / "new.yaml").views
    assert (views.hue, views.grayscale) == expected


@pytest.mark.parametrize("name", ["2024", "off"])
def test_a_name_that_yaml_reads_as_something_else_is_a_text(folder: Path, name: str) -> None:
    run_init(folder, TABLE, name=name)
    assert load_spec(folder / "new.yaml").name == name


@pytest.mark.parametrize("character", ["\x7f", "\x9f", "\u2028", "\uffff"])
def test_columns_may_have_characters_that_yaml_forbids(folder: Path, character: str) -> None:
    """Both in a field and in the comment on columns that are not used."""
    label, unused = f"colour{character}1", f"remark{character}2: x"
    rows = [f"{row},{i}" for i, row in enumerate(TABLE.splitlines()[1:])]
    run_init(folder, "\n".join([f"image,{label},{unused}", *rows]))
    assert load_spec(folder / "new.yaml").data.tasks == (label,)


def rows_of(image: str = "{i}.png", splits: str = "train test", count: int = 100) -> str:
    """Returns a CSV whose cells depend on the row's number; an underscore stands for a space."""
    names = [name.replace("_", " ") for name in splits.split(" ")]
    colours = ["red" if i % 7 < 3 else "blue" for i in range(count)]
    rows = [f"{image.format(i=i)},{names[i % len(names)]},{c}" for i, c in enumerate(colours)]
    return "\n".join(["image,split,colour", *rows]) + "\n"


SPECS = [
    ("{i}.png", "train test", "images", None),
    ("{folder}/images/{i}.png", "train val test", "images", None),
    ("images/{i}.png", "train val test", "images.tar", None),
    ("{folder}/images/{i}.png", "train val test", "images.tar", "must name files in"),
    ("/elsewhere/{i}.png", "train val test", "images", "must name files inside"),
    ("{i}.PNG", "train val test", "images", "exists as '0.png'"),
]


@pytest.mark.parametrize(("image", "splits", "images", "refused"), SPECS)
def test_its_spec(folder: Path, image: str, splits: str, images: str, refused: str | None) -> None:
    """Nothing is written if `validate` would refuse it."""
    pack(folder / "images", folder / "images.tar", "images")
    result = run_init(folder, rows_of(image.replace("{folder}", str(folder)), splits), images)
    assert result.exit_code == (2 if refused else 0), result.output
    assert (folder / "new.yaml").exists() == (refused is None)
    assert (refused or "") in result.stderr


def test_missing_images_are_said(folder: Path) -> None:
    result = run_init(folder, rows_of(splits="train val test", count=125))
    assert "warning: 5 images cannot be read and are left out" in result.stderr
    assert "  max_bad_images: 0.05\n" in (folder / "new.yaml").read_text()
