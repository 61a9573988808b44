"""`init` guesses the columns of a table or the levels of folders, and writes a spec."""

from pathlib import Path

import pandas as pd
import pytest

from mtcon_ray.cli.infer_columns import infer_columns
from mtcon_ray.cli.spec_template import write_new
from mtcon_ray.errors import DataError, ResourceError
from mtcon_ray.spec.run_spec import load_spec
from tests.cli.conftest import accepted, refused
from tests.data.archives import pack
from tests.data.labels import labels_of
from tests.data.sources.downloads import save_image

NUM_ROWS = 300
SCRIPTS = ("形状", "شكل", "A+", "A-", "k" * 300)  # names of columns


def write_csv(folder: Path, **columns: list[str]) -> Path:
    """A CSV of these columns, one row per image."""
    table = {"file": [f"pictures/{i}.jpg" for i in range(NUM_ROWS)], **columns}
    pd.DataFrame(table).to_csv(folder / "labels.csv", index=False)
    return folder / "labels.csv"


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


def test_columns_of_every_kind(folder: Path) -> None:
    """The column without a name is the index that pandas writes."""
    bits = {f"bit{i}": [str(j % 2) for j in range(NUM_ROWS)] for i in range(9)}
    csv = write_csv(
        folder, split=[("train", "val", "test")[i % 3] for i in range(NUM_ROWS)],
        group_id=[str(i // 2) for i in range(NUM_ROWS)], colour=cycle(5), brand=cycle(30),
        constant=cycle(1), title=cycle(NUM_ROWS), price=[f"{i}.5" for i in range(NUM_ROWS)],
        **dict.fromkeys(SCRIPTS, cycle(4)), **bits, **{"": cycle(5)},
    )  # fmt: skip
    found = infer_columns(csv, folder)
    assert found.data == {
        "kind": "table", "csv": str(csv), "images": str(folder), "image_column": "file",
        "tasks": ["colour", "brand", *SCRIPTS], "held_out": [], "split_column": "split",
        "group_column": "group_id", "multi_hot": {"attributes": list(bits)},
    }  # fmt: skip
    assert found.unused == ["constant", "title", "price"]
    assert "  # Not used:\n  # - constant\n  # - title\n  # - price\n" in found.spec_text()
    assert found.name == "my-shoes"
    (folder / "spec.yaml").write_text(found.spec_text(), encoding="utf-8")
    labels = labels_of(load_spec(folder / "spec.yaml").data)
    assert labels.multi_hot_names["attributes"][0] == "bit0"
    assert labels.multi_hot["attributes"][:3, 0].tolist() == [0, 1, 0]


def test_images_inside_the_named_folder_are_found_from_its_parent(folder: Path) -> None:
    csv = write_csv(folder, colour=cycle(5))
    for i in range(NUM_ROWS):
        (folder / "pictures" / f"{i}.jpg").touch()
    assert infer_columns(csv, folder / "pictures").data["images"] == str(folder)


def test_the_column_of_existing_files_is_that_of_the_images(folder: Path) -> None:
    """Also if another column has names of images, and if the files' names have no ending."""
    for i in range(NUM_ROWS):
        (folder / "pictures" / f"{i}").touch()
    rows = [f"http://x.org/{i}.png,pictures/{i},{'ab'[i % 2]}" for i in range(NUM_ROWS)]
    (folder / "labels.csv").write_text("\n".join(["url,file,label", *rows]))
    data = infer_columns(folder / "labels.csv", folder).data
    assert (data["image_column"], "max_bad_images" in data) == ("file", False)


SPLITS = [
    ("partition", "0 0 0 1 2", "split"),
    ("stars", "0 0 0 1 2", "task"),
    ("Split", "Training_ _train train VAL _test", "split"),
    ("part", "train0 train1 train2 train1 train2", "task"),
    ("split", "train Training val '' val", "unused"),
    ("split", "val test val test val", "task"),
    ("split", "train train val test unlabeled", "unused"),
]


@pytest.mark.parametrize(("column", "names", "role"), SPLITS)
def test_a_split_goes_by_several_names(folder: Path, column: str, names: str, role: str) -> None:
    """0, 1, 2 only where the column's name says so. A column that lacks a split is not used.

    An underscore stands for a space, and quotes for an empty cell.
    """
    cells = [word.strip("'").replace("_", " ") for word in names.split()] * (NUM_ROWS // 5)
    found = infer_columns(write_csv(folder, colour=cycle(6), **{column: cells}), folder)
    assert found.data["split_column"] == (column if role == "split" else None)
    assert found.data["tasks"] == ["colour", *[column] * (role == "task")]
    assert found.unused == [column] * (role == "unused")


def test_sparse_labels_are_no_tasks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`validate` would refuse them: no label in val, one class in train, few labels in train."""
    split = [("train", "train", "train", "val", "test")[i % 5] for i in range(NUM_ROWS)]
    some = ["" if i % 5 == 3 else f"v{i % 2}" for i in range(NUM_ROWS)]
    same = ["a" if i % 5 < 3 else "b" for i in range(NUM_ROWS)]
    few = [f"v{i % 2}" if i % 5 > 2 or i < 12 else "" for i in range(NUM_ROWS)]
    monkeypatch.setattr("mtcon_ray.cli.infer_labels.LEAST_SHARE", 0.05)
    csv = write_csv(folder, split=split, colour=cycle(6), some=some, same=same, few=few)
    found = infer_columns(csv, folder)
    assert (found.data["tasks"], found.unused) == (["colour"], ["some", "same", "few"])


GROUPS = [
    (("Patient ID",), "Patient ID"), (("patientId",), "patientId"),
    (("subject-id",), "subject-id"), (("study_id", "subject_id"), "subject_id"),
    (("scene", "lesion", "caseload", "product"), None),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "group"), GROUPS)
def test_groups_have_many_names(folder: Path, columns: tuple[str, ...], group: str) -> None:
    """The column with fewer groups is taken. Two groups are too few for a random split."""
    assert infer_columns(write_csv(folder, group=cycle(2)), folder).data["group_column"] is None
    groups = {c: [str(i // (2 * n + 2)) for i in range(NUM_ROWS)] for n, c in enumerate(columns)}
    found = infer_columns(write_csv(folder, **groups, kind=cycle(3)), folder)
    assert found.data["group_column"] == group


def test_no_label_column_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match=r"column that can be a label, .* a spec by hand"):
        infer_columns(write_csv(folder, title=cycle(NUM_ROWS)), folder)


def test_no_image_column_is_an_error_with_a_hint(tmp_path: Path) -> None:
    """As in HAM10000 and APTOS. A class may be the name of another image by chance."""
    (tmp_path / "0.png").touch()
    csv = tmp_path / "labels.csv"
    csv.write_text("\n".join(["stars,id,name", *(f"{i % 3},x{i},{i}" for i in range(60))]))
    hint = "'0' exists as '0.png': column 'name' must hold paths"
    with pytest.raises(DataError, match=f"column with the images' paths.*\n{hint}"):
        infer_columns(csv, tmp_path)


def test_images_must_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data.images not found: .*none does not"):
        infer_columns(tmp_path / "labels.csv", tmp_path / "none")


def test_only_a_new_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("mine")
    for other in (path, tmp_path / "none" / "spec.yaml"):
        with pytest.raises(ResourceError, match="must be a new, writable file"):
            write_new(other, "yours")
    assert path.read_text() == "mine"


def make(root: Path, *folders: str) -> Path:
    for folder in folders:
        for i in range(20):
            save_image(root / folder / f"{i}.png", 10 * i)
    return root


def test_a_folder_per_class(tmp_path: Path) -> None:
    images = make(tmp_path / "My Flowers", "daisy", "rose")
    (images / "rose" / "1.heic").touch()
    done = accepted("init", images, "-o", tmp_path / "spec.yaml")
    assert f"warning: 1 files of {images} are left out (they are not images" in done.stderr
    assert "  tasks     class (2 classes)\n" in done.stdout
    assert "  splits    drawn at random from seed 0" in done.stdout
    spec = load_spec(tmp_path / "spec.yaml")
    assert (spec.name, spec.data.kind, spec.data.tasks) == ("my-flowers", "folder", ("class",))
    assert spec.train.batch_size == 8


def test_a_folder_around_all_others_is_no_class(tmp_path: Path) -> None:
    make(tmp_path / "images", "flowers/daisy", "flowers/rose")
    accepted("init", tmp_path / "images", "-o", tmp_path / "spec.yaml")
    assert load_spec(tmp_path / "spec.yaml").data.tasks == ("level_2",)


def test_a_label_per_level_below_the_splits(tmp_path: Path) -> None:
    folders = [f"{s}/{a}/{b}" for s in ("train", "val", "test") for a in "ab" for b in "cd"]
    make(tmp_path / "images", *folders)
    pack(tmp_path / "images", tmp_path / "images.tar.gz")
    done = accepted("init", tmp_path / "images.tar.gz", "-o", tmp_path / "spec.yaml")
    assert "  splits    the folders test, train, val\n" in done.stdout
    spec = load_spec(tmp_path / "spec.yaml")
    assert (spec.name, spec.data.tasks) == ("images", ("level_1", "level_2"))


OTHER_FOLDERS = [
    (["."], "must lie in folders named after their classes, got 0.png; give a CSV"),
    ([], "has no images (files ending in JPEG, PNG, "),
    (["a", "b/c"], "must lie in folders class, got b/c/0.png"),
]


@pytest.mark.parametrize(("folders", "told"), OTHER_FOLDERS)
def test_other_folders_are_refused(tmp_path: Path, folders: list[str], told: str) -> None:
    (tmp_path / "images").mkdir()
    images = make(tmp_path / "images", *folders)
    assert told in refused("init", images, "-o", tmp_path / "spec.yaml")
    assert not (tmp_path / "spec.yaml").exists()
