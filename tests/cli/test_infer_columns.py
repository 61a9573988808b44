"""`init`: what columns are for, and the spec that is written."""

from pathlib import Path

import pytest

from mtcon_ray.cli.infer_columns import InferredColumns, infer_columns
from mtcon_ray.cli.spec_template import spec_text, write_new
from mtcon_ray.errors import DataError, ResourceError, SweepError
from mtcon_ray.spec.run_spec import load_spec

NUM_ROWS = 300


def write_csv(folder: Path, **columns: list[str]) -> Path:
    """A CSV of these columns, one row per image."""
    images = [f"pictures/{i}.jpg" for i in range(NUM_ROWS)]
    table = {"file": images, **columns}
    rows = [",".join(table), *(",".join(cells) for cells in zip(*table.values(), strict=True))]
    path = folder / "labels.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of one picture's worth of names."""
    place = tmp_path / "My Shoes"
    (place / "pictures").mkdir(parents=True)
    (place / "pictures" / "0.jpg").touch()
    return place


def cycle(values: int, prefix: str = "v") -> list[str]:
    """A column of so many values in turn."""
    return [f"{prefix}{i % values}" for i in range(NUM_ROWS)]


@pytest.fixture
def found(folder: Path) -> InferredColumns:
    """The inferred columns of a table with a column of every kind."""
    bits = {f"bit{i}": [str(j % 2) for j in range(NUM_ROWS)] for i in range(9)}
    csv = write_csv(
        folder,
        split=[("train", "val", "test")[i % 3] for i in range(NUM_ROWS)],
        group_id=[str(i // 2) for i in range(NUM_ROWS)],
        colour=cycle(5),
        brand=cycle(30),
        constant=cycle(1),
        title=cycle(NUM_ROWS),
        price=[f"{i}.5" for i in range(NUM_ROWS)],
        **bits,
    )
    return infer_columns(csv, folder)


def test_columns_are_told_apart(found: InferredColumns) -> None:
    assert found.image_column == "file"
    assert found.split_column == "split"
    assert found.group_column == "group_id"
    assert found.classes == {"colour": 5, "brand": 30}
    assert (found.tasks, found.held_out) == (("colour",), ("brand",))
    assert found.sets == {"attributes": (tuple(f"bit{i}" for i in range(9)), 9)}
    assert found.continuous == ("price",)
    assert found.unused == ("constant", "title")
    assert found.name == "my-shoes"


def test_written_spec_is_valid_and_says_the_same(found: InferredColumns, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    write_new(path, spec_text(found))
    data = load_spec(path).data.model_dump()
    assert data["tasks"] == ("colour",)
    assert data["held_out"] == ("brand",)
    assert data["group_column"] == "group_id"
    assert data["continuous"] == ("price",)
    assert data["csv"] == str(found.csv)
    assert path.read_text().count("#") > 20


def test_images_inside_the_named_folder_are_found_from_its_parent(folder: Path) -> None:
    csv = write_csv(folder, colour=cycle(5))
    assert infer_columns(csv, folder / "pictures").images == folder


@pytest.mark.parametrize("place", ["", "pictures"])
def test_the_column_of_existing_files_is_that_of_the_images(folder: Path, place: str) -> None:
    for i in range(NUM_ROWS):
        (folder / "pictures" / f"{i}.jpg").touch()
    rows = [f"http://x.org/{i}.png,pictures/{i}.jpg,{'ab'[i % 2]}" for i in range(NUM_ROWS)]
    (folder / "labels.csv").write_text("\n".join(["url,file,label", *rows]))
    found = infer_columns(folder / "labels.csv", folder / place)
    assert (found.image_column, found.images, found.num_absent) == ("file", folder, 0)


def test_a_split_is_drawn_where_no_column_is_one(folder: Path) -> None:
    found = infer_columns(write_csv(folder, colour=cycle(5), part=cycle(3, "train")), folder)
    assert found.split_column is None
    assert "split_column: null" in spec_text(found)


@pytest.mark.parametrize(
    ("column", "names", "is_split"),
    [
        ("part", "training training training validation testing", True),
        ("part", "train train train dev eval", True),
        ("partition", "0 0 0 1 2", True),
        ("stars", "0 0 0 1 2", False),
        ("set", "0 1 2 1 2", False),
        ("part", "train train train validation test", True),
        ("Split", "Training_ _train train VAL _test", True),
        ("partition", "0_ 0 _0 1 2", True),
    ],
)
def test_a_split_goes_by_several_names(
    folder: Path, column: str, names: str, is_split: bool
) -> None:
    """0, 1, 2 only where the column's name says so, and 0 is what most images are.

    An underscore stands for a space.
    """
    cells = [word.strip("'").replace("_", " ") for word in names.split()] * (NUM_ROWS // 5)
    csv = write_csv(folder, colour=cycle(6), **{column: cells})
    found = infer_columns(csv, folder)
    assert (found.split_column == column) == is_split
    assert (column in found.tasks) != is_split


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("train train train train test", "no val: mark some of its rows val"),
        ("train Training val '' val", "no test: mark some of its rows test"),
        ("train train '' validation test", "60 rows of no split: remove them"),
        ("train NaN '' validation test", "120 rows of no split: remove them"),
    ],
)
def test_a_column_that_lacks_a_split_is_not_used(folder: Path, names: str, why: str) -> None:
    cells = [word.strip("'") for word in names.split()] * (NUM_ROWS // 5)
    found = infer_columns(write_csv(folder, colour=cycle(6), split=cells), folder)
    says = f"column 'split' has {why} to use it"
    assert (found.split_column, found.tasks, found.unused) == (None, ("colour",), ("split",))
    assert f"           {says}" in found.describe()
    assert f"  # {says}.\n  split_column: null\n" in spec_text(found)


def test_labels_that_a_split_lacks_are_no_tasks(folder: Path) -> None:
    """`validate` would refuse them: no label in val, and one class in train."""
    split = [("train", "train", "train", "val", "test")[i % 5] for i in range(NUM_ROWS)]
    some = ["" if i % 5 == 3 else f"v{i % 2}" for i in range(NUM_ROWS)]
    same = ["a" if i % 5 < 3 else "b" for i in range(NUM_ROWS)]
    csv = write_csv(folder, split=split, colour=cycle(6), some=some, same=same)
    found = infer_columns(csv, folder)
    assert (found.tasks, found.unused) == (("colour",), ("some", "same"))


def test_the_spec_says_how_numbers_and_bits_are_trained_on(found: InferredColumns) -> None:
    text = spec_text(found)
    assert "put their names into tasks to train on them" in text
    assert "put the name attributes into tasks to train on them" in text
    assert "kept for methods" not in text


def test_no_label_column_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match=r"column that can be a label, .* a spec by hand"):
        infer_columns(write_csv(folder, title=cycle(NUM_ROWS)), folder)


def test_no_image_column_is_an_error(tmp_path: Path) -> None:
    csv = tmp_path / "labels.csv"
    csv.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="column with the images' paths"):
        infer_columns(csv, tmp_path)


def test_a_cell_that_is_too_long_for_a_name_is_no_image(tmp_path: Path) -> None:
    csv = tmp_path / "labels.csv"
    csv.write_text(f"a,b\n{'x' * 5000},y.jpg\n")
    (tmp_path / "y.jpg").touch()
    with pytest.raises(DataError, match=r"column that can be a label, .* a spec by hand"):
        infer_columns(csv, tmp_path)
    csv.write_text(f"a,b\n{'x' * 5000},1\n")
    with pytest.raises(DataError, match="column with the images' paths"):
        infer_columns(csv, tmp_path)


def test_images_must_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="which is not there"):
        infer_columns(tmp_path / "labels.csv", tmp_path / "none")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("mine")
    with pytest.raises(SweepError, match="exists already"):
        write_new(path, "yours")
    assert path.read_text() == "mine"


def test_unwritable_output_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="must be writable"):
        write_new(tmp_path / "none" / "spec.yaml", "text")


def test_few_bits_and_labels_of_few_classes_are_all_tasks(folder: Path) -> None:
    new = [str(i % 2) for i in range(NUM_ROWS)]
    found = infer_columns(write_csv(folder, colour=cycle(20), part=cycle(3), new=new), folder)
    assert (found.tasks, found.held_out) == (("colour", "part", "new"), ())
