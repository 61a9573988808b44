"""`init` of tables as published data sets and spreadsheets have them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.cli.infer_columns import InferredColumns, infer_columns
from mtcon_ray.cli.spec_template import spec_text
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable, read_table
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.errors import DataError
from mtcon_ray.spec.run_spec import load_spec

NUM_ROWS = 60
Columns = Mapping[str, Callable[[int], object]]


def infer(folder: Path, columns: Columns, rows: int = NUM_ROWS, image: str = "{}.png") -> Any:
    """Returns what `init` infers of a table with a cell per row and column."""
    (folder / "images").mkdir()
    (folder / "images" / "0.png").touch()
    lines = [",".join(["image", *columns])]
    lines += [
        ",".join([image.format(i), *(str(cell(i)) for cell in columns.values())])
        for i in range(rows)
    ]
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return infer_columns(folder / "labels.csv", folder / "images")


def labels_of(found: InferredColumns, folder: Path) -> LabelTable:
    """Returns the labels as the written spec reads them."""
    (folder / "spec.yaml").write_text(spec_text(found), encoding="utf-8")
    data = load_spec(folder / "spec.yaml").data
    return read_table(SOURCES["table"](data))


def bits(count: int, no: object = 0, yes: object = 1, name: str = "A") -> Columns:
    """Returns columns of two texts."""
    return {
        f"{name}{k}": lambda i, k=k: yes if (i * 5 + k * k) % 3 else no  # type: ignore[misc]
        for k in range(count)
    }


def kind(i: int) -> str:
    """Returns a class."""
    return "abc"[i % 3]


@pytest.mark.parametrize(
    "texts", [(0, 1), (-1, 1), ("False", "True"), ("0.0", "1.0"), ("no", "Yes")]
)
def test_columns_of_bits_alone_are_one_task(tmp_path: Path, texts: tuple[object, object]) -> None:
    """CelebA's, MLRSNet's, and one-hot VOC's."""
    found = infer(tmp_path, bits(10, *texts))
    assert (found.tasks, found.classes, found.held_out) == (("attributes",), {}, ())
    assert "tasks      attributes (10 labels)" in found.describe()
    read = labels_of(found, tmp_path).multi_hot["attributes"]
    assert read[:3, 0].tolist() == [0, 1, 1]


def test_a_set_has_one_convention_and_columns_that_vary(tmp_path: Path) -> None:
    """-1 means no in one set. Columns without cells and constant columns are in none."""
    others: Columns = {"none": lambda i: "", "one": lambda i: 1, "attributes": kind}
    found = infer(tmp_path, {**bits(9, -1), **bits(8, name="B"), **others})
    assert found.sets == {"attributes_": (tuple(f"A{k}" for k in range(9)), 9)}
    assert found.tasks == (*(f"B{k}" for k in range(8)), "attributes")
    assert found.unused == ("none", "one")
    assert labels_of(found, tmp_path).multi_hot_names["attributes_"][0] == "A0"


def test_minus_one_beside_zero_is_a_class_that_is_told(tmp_path: Path) -> None:
    """CheXpert's uncertain findings."""
    findings: Columns = {f"F{k}": lambda i: ("1.0", "0.0", "-1.0", "")[i % 4] for k in range(9)}
    found = infer(tmp_path, findings)
    assert (found.tasks, found.sets) == (tuple(findings), {})
    (remark,) = found.remarks
    assert remark.startswith("-1 is a class of its own beside 0 in 'F0', 'F1'")
    assert f"check      {remark}" in found.describe()
    assert f"  # Check: {remark}.\n" in spec_text(found)
    warnings = labels_of(found, tmp_path).warnings
    assert "'-1.0' (15 rows, first row 4) count as labels of their own" in str(warnings)


@pytest.mark.parametrize(
    ("columns", "rows", "tasks", "remark"),
    [
        ({"dish": lambda i: f"d{i % 101}"}, 606, ("dish",), "'dish' has 101 classes with 6.0 rows"),
        ({"kind": lambda i: "abcd"[i % 4]}, 12, ("kind",), "4 classes with 3.0 rows each"),
        ({"dish": lambda i: f"d{i % 101}", "kind": kind}, 606, ("kind",), "into tasks or held_out"),
    ],
    ids=["many", "few rows", "beside others"],
)
def test_unlikely_labels_are_used_if_there_are_no_others(
    tmp_path: Path, columns: Columns, rows: int, tasks: tuple[str, ...], remark: str
) -> None:
    found = infer(tmp_path, columns, rows)
    assert found.tasks == tasks
    assert [remark in text for text in found.remarks] == [True]
    assert labels_of(found, tmp_path).classes.keys() == set(tasks)


def test_names_of_images_without_ending_get_a_hint(tmp_path: Path) -> None:
    """As in HAM10000 and APTOS. A class may be the name of another image by chance."""
    with pytest.raises(DataError, match=r"'0' is there as '0.png': column 'image' must hold paths"):
        infer(tmp_path, {"stars": lambda i: i % 3}, image="{}")


def test_the_hint_lists_the_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, names = [], ImageFolder.names

    def counted(self: ImageFolder, **options: bool) -> Iterator[str]:
        listed.append(self.root)
        return names(self, **options)

    monkeypatch.setattr(ImageFolder, "names", counted)
    with pytest.raises(DataError, match="with the images' paths below"):
        infer(tmp_path, {f"c{k}": lambda i: i + 1 for k in range(9)}, image="x{}")
    assert listed == [tmp_path / "images"]


def test_names_of_images_may_have_no_ending(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for i in range(NUM_ROWS):
        (tmp_path / "images" / f"n{i}").touch()
    rows = [f"n{i},{kind(i)}" for i in range(NUM_ROWS)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,kind", "gone,a", *rows]))
    found = infer_columns(tmp_path / "labels.csv", tmp_path / "images")
    assert (found.image_column, found.num_absent) == ("id", 1)


def test_columns_in_any_script_are_tasks(tmp_path: Path) -> None:
    names = ("形状", "颜色", "форма", "شكل", "A+", "A-", "k" * 300)
    assert infer(tmp_path, dict.fromkeys(names, kind)).tasks == names


@pytest.mark.parametrize(
    ("columns", "group"),
    [
        (("Patient ID",), "Patient ID"),
        (("patientId",), "patientId"),
        (("lesion_id",), "lesion_id"),
        (("subject-id",), "subject-id"),
        (("case id",), "case id"),
        (("study_id", "subject_id"), "subject_id"),
        (("scene", "lesion", "caseload"), None),
    ],
)
def test_groups_have_many_names(tmp_path: Path, columns: tuple[str, ...], group: str) -> None:
    """The column with fewer groups is taken."""
    groups: Columns = {c: lambda i, n=n: i // (2 * n + 2) for n, c in enumerate(columns)}  # type: ignore[misc]
    found = infer(tmp_path, {**groups, "kind": kind})
    assert found.group_column == group
    labels_of(found, tmp_path)


def test_few_groups_are_no_groups(tmp_path: Path) -> None:
    """A random split of two groups would have an empty part."""
    found = infer(tmp_path, {"group": lambda i: "ab"[i % 2]})
    assert (found.group_column, found.tasks) == (None, ("group",))


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_lists_are_sets(tmp_path: Path, separator: str) -> None:
    """The order of the names in a list does not matter."""
    lists = ("Mass", f"Mass{separator}Edema", f"Edema{separator} Mass", "Edema", "")
    columns: Columns = {"Finding Labels": lambda i: f'"{lists[i % 5]}"', "kind": kind}
    found = infer(tmp_path, columns)
    assert found.tasks == ("kind", "Finding Labels")
    read = labels_of(found, tmp_path)
    assert read.multi_hot_names == {"Finding Labels": ("Edema", "Mass")}
    assert read.multi_hot["Finding Labels"][:5].tolist() == [
        [0, 1], [1, 1], [1, 1], [1, 0], [255, 255],
    ]  # fmt: skip


def test_lists_with_another_separator_are_told(tmp_path: Path) -> None:
    columns: Columns = {
        "tags": lambda i: ("a", "a|b", "b")[i % 3],
        "more": lambda i: ("c", "c;d", "d")[i % 3],
    }
    found = infer(tmp_path, columns)
    assert found.tasks == ("more", "tags")
    assert "'more' has lists with ';' between the names" in str(found.remarks)


def test_lists_of_many_names_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that `read_lists` refuses are no label set."""
    columns: Columns = {"tags": lambda i: f"t{i % 110}" + "|u" * (i % 7 == 0), "kind": kind}
    found = infer(tmp_path, columns, rows=1000)
    assert found.tasks == ("kind", "tags")
    assert found.remarks == ("column 'tags' has lists of 111 names: is it a label set?",)
    monkeypatch.setattr("mtcon_ray.cli.infer_labels.MAX_BITS", 110_000)
    assert infer_columns(tmp_path / "labels.csv", tmp_path / "images").sets == {}


@pytest.mark.parametrize(("cell", "what"), [(kind, "labels"), (lambda i: i + 0.5, "numbers")])
def test_more_columns_than_a_spec_can_name_are_refused(
    tmp_path: Path, cell: Callable[[int], object], what: str
) -> None:
    with pytest.raises(DataError, match=f"most 1,000 columns that may be {what}, got 1,001; give"):
        infer(tmp_path, {f"c{k}": cell for k in range(1001)}, rows=30)


@pytest.mark.parametrize(
    ("cell", "tasks", "continuous"),
    [
        (lambda i: f"{i % 3}.0", ("grade",), ()),
        (lambda i: f"{i % 3}.0" if i % 5 else "", ("grade",), ()),
        (lambda i: f"{i % 30}.0", ("grade",), ("grade",)),
        (lambda i: f"{i % 3}.5", ("grade",), ("grade",)),
    ],
    ids=["whole", "gaps", "many whole", "decimals"],
)
def test_few_whole_numbers_are_classes(
    tmp_path: Path, cell: Callable[[int], str], tasks: tuple[str, ...], continuous: tuple[str, ...]
) -> None:
    """Numbers are a task if there is no other label."""
    found = infer(tmp_path, {"grade": cell})
    assert (found.tasks, found.continuous) == (tasks, continuous)
    assert bool(labels_of(found, tmp_path).continuous) == bool(continuous)
    assert "put their names into tasks" not in spec_text(found)
