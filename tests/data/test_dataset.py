"""Tests of the data set: checks of labels, label noise, class codes, fingerprint."""

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from mtcon_ray.data.dataset import open_dataset, store_size
from mtcon_ray.data.labels import add_label_noise, read_table
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation.probe_data import majority_shares
from mtcon_ray.spec.data.own import SyntheticSpec
from tests.data.labels import coded, labels_of


def noisy(split: list[int], **labels: list[int]) -> dict[str, np.ndarray]:
    """Returns the labels of columns of four classes, with noise on `a`."""
    return add_label_noise(coded(split, **labels), {"a": 0.7}, seed=3).labels


@pytest.mark.parametrize("codes", [[0, 4], [-2, 0], [0.0, 1.0], [0], np.array([0, 1], np.int8)])
def test_the_codes_of_a_source_are_checked(codes: Any) -> None:
    source = Mock()
    source.read_labels.return_value = coded([0, 1], a=codes)
    with pytest.raises(DataError, match=r"read_labels must return 'a' as integers \[2\] from -1"):
        read_table(source)


def test_other_labels_and_splits_do_not_move_the_noise() -> None:
    """Changes of other splits and columns do not change the noise of a task's train labels."""
    split, codes = [0] * 30 + [1] * 5 + [2] * 10, [row % 3 for row in range(45)]
    first = noisy(split, a=codes, b=codes)["a"]
    spoilt = noisy(split, a=codes[:30] + [-1] * 5 + [0] * 10, b=[2] * 45)
    assert (first[:30] == spoilt["a"][:30]).all()
    assert (first[:30] != codes[:30]).any()
    assert (first[30:] == codes[30:]).all(), "noise is in train alone"
    assert (spoilt["a"][35:] == 0).all()
    assert (spoilt["b"] == 2).all()


def test_noise_redraws_the_share_of_the_known_labels_over_all_classes() -> None:
    """share * (K - 1) / K of the known labels change; missing labels stay missing.

    The original class may be drawn again, as in MSCon's experiment (Mu, Guttag and Makar 2023,
    arXiv:2307.02712, figure 3).
    """
    found = noisy([0] * 2100, a=[-1] * 100 + [0] * 2000)["a"]
    assert (found[:100] == -1).all()
    assert (found[100:] != 0).mean() == pytest.approx(0.7 * 3 / 4, abs=0.03)


def test_noise_is_drawn_once_per_share_seed_and_column() -> None:
    """Equal arguments give equal noise. Another seed or share gives other noise."""
    spec = SyntheticSpec.model_validate({"label_noise": {"texture": 0.5, "shape": 0.5}})
    table = labels_of(spec.model_copy(update={"label_noise": {}}))
    before, found = table.labels["texture"], labels_of(spec).labels["texture"]

    def noise(share: float, seed: int) -> np.ndarray:
        return add_label_noise(table, {"texture": share}, seed).labels["texture"]

    assert (noise(0.5, 0) == found).all()
    for other in (noise(0.6, 0), noise(0.5, 1)):
        assert ((other == before) & (found != before)).any()


def test_held_out_top_k_masks_rare_classes(files: Any) -> None:
    """Items of all splits count, ties go by name, and the kept classes get new codes."""
    files.frame["brand"] = ["d"] * 2 + ["c"] * 4 + ["b"] * 4 + ["a"] * 9 + [""]
    table = labels_of(files.spec(held_out=["brand"], held_out_top_k=2))
    assert table.classes["brand"] == ("a", "b")
    assert table.labels["brand"].tolist() == [-1] * 6 + [1] * 4 + [0] * 9 + [-1]
    whole = labels_of(files.spec(held_out=["brand"], held_out_top_k=99))
    assert whole.classes["brand"] == ("a", "b", "c", "d")
    assert whole.labels["brand"][[0, -1]].tolist() == [3, -1]


def test_images_are_not_enlarged_unless_asked_to() -> None:
    """The stored side is 1.25 times the view's unless given."""
    assert store_size(SyntheticSpec(), 32) == 40
    spec = SOURCES["cifar10"].Spec.model_validate({"root": "/cifar"})
    assert [store_size(spec, view_size) for view_size in (16, 25, 26, 64)] == [20, 31, 32, 32]
    assert store_size(spec.model_copy(update={"store_size": 40}), 16) == 40


def test_the_fingerprint_follows_images_labels_splits_and_size(files: Any, tmp_path: Path) -> None:
    """The fingerprint changes with each of them, and is otherwise reproducible."""

    def fingerprint(view_size: int = 16, **fields: Any) -> str:
        data = open_dataset(files.spec(**fields), view_size=view_size, store=tmp_path / "store")
        return data.fingerprint

    assert fingerprint() == fingerprint()
    sets: dict[str, Any] = {"multi_hot": {"looks": ["shiny"]}, "tasks": ["looks"]}
    seen = [fingerprint(), fingerprint(view_size=20), fingerprint(label_noise={"kind": 1.0})]
    seen += [fingerprint(held_out=["tone"]), fingerprint(fraction=0.5)]
    files.frame["shiny"] = ["0", "1"] * 10
    seen.append(fingerprint(**sets))
    for first in "ab":
        files.frame["shoe"] = [first, *"b" * 19]
        seen.append(fingerprint(group_column="shoe"))
    for column, value in (("shiny", "1"), ("split", "val")):
        files.frame.loc[0, column] = value
        seen.append(fingerprint(**({} if column == "split" else sets)))
    files.frame["kind"] = files.frame["kind"].replace("a", "c")
    seen.append(fingerprint())
    (files.images / "0.jpg").write_bytes((files.images / "1.jpg").read_bytes())
    seen.append(fingerprint())
    assert len(set(seen)) == len(seen)


def test_a_fraction_keeps_whole_groups_of_train(files: Any) -> None:
    """Train has six groups, three of which are single images. Val, test and classes stay.

    The choice does not depend on the order of the rows. A smaller choice is part of a larger one.
    """
    files.frame["shoe"] = ["" if row < 5 else f"shoe {row // 5}" for row in range(20)]
    files.frame.loc[[0, 1, 6], "kind"] = "rare"
    noise, chosen, labels = {"kind": 0.9}, list[set[str]](), []
    for fraction, count in ((0.34, 2), (0.5, 3), (0.84, 5), (1, 6)):
        table = labels_of(files.spec(group_column="shoe", fraction=fraction, label_noise=noise))
        kept = table.split > 0
        labels.append((table.classes, [*table.split[kept], *table.labels["kind"][kept]]))
        shoes = Counter(files.frame["shoe"][table.rows("train")])
        assert (shoes.pop("", 0) + len(shoes), {*shoes.values(), 3}) == (count, {3})
        chosen.append({table.names[row] for row in table.rows("train")})
    assert all(each == labels[0] for each in labels)
    assert chosen[0] < chosen[1] < chosen[2] < chosen[3]
    files.frame = files.frame[::-1]
    for seed in (0, 1):
        table = labels_of(files.spec(group_column="shoe", fraction=0.5, seed=seed))
        assert ({table.names[row] for row in table.rows("train")} == chosen[1]) is (seed == 0)


def test_a_fraction_of_single_images(files: Any) -> None:
    for share, count in ((1e-6, 1), (0.1, 280)):
        table = labels_of(SyntheticSpec(fraction=share, tasks=(), held_out=()))
        assert np.bincount(table.split + 1).tolist() == [2800 - count, count, 400, 800]
    assert table.split_origin == "10 % of the train groups (data.fraction)"
    with pytest.raises(DataError, match=r"'kind' must have different .* or raise data\.fraction"):
        labels_of(files.spec(fraction=0.01))


# Classes and a set of two labels, from the columns of `with_set`.
EVERY_KIND: Any = {"tasks": ["kind", "looks"], "multi_hot": {"looks": ["shiny", "soft"]}}


@pytest.fixture
def with_set(files: Any) -> Any:
    """Returns `files` with columns of two labels, all known."""
    files.frame["shiny"] = [str(row % 2) for row in range(20)]
    files.frame["soft"] = [str(row % 3 % 2) for row in range(20)]
    return files


def test_what_is_known_of_a_set_is_one_bit_at_least(with_set: Any) -> None:
    for column, rows in {"shiny": [0, 1], "soft": [1, 2], "kind": [4]}.items():
        with_set.frame.loc[rows, column] = ""
    table = labels_of(with_set.spec(**EVERY_KIND))
    assert [np.flatnonzero(~table.known(n)).tolist() for n in ("looks", "kind")] == [[1], [4]]


UNUSABLE = [
    (["val"], "", "must have labels in the val split, got none"),
    (["test"], "", "must have labels in the test split, got none"),
    (["train"], "1", "must have different values .* got (only '1'|the same in all items);"),
    (["train"], "", "must have different values in the train split, got no label;"),
    (["train", "val", "test"], "", "must have labels, got only empty cells"),
]


@pytest.mark.parametrize(("name", "columns"), [("kind", ["kind"]), ("looks", ["shiny", "soft"])])
@pytest.mark.parametrize(("splits", "constant", "message"), UNUSABLE)
def test_a_label_must_vary_in_train_and_have_values_in_each_split(
    with_set: Any, name: str, columns: list[str], splits: list[str], constant: str, message: str
) -> None:
    """An accuracy over no items is undefined."""
    with_set.frame.loc[with_set.frame["split"].isin(splits), columns] = constant
    spec = with_set.spec(**EVERY_KIND | {"tasks": ["tone"], "held_out": [name]})
    with pytest.raises(DataError, match=f"label (column|set) '{name}' {message}"):
        labels_of(spec)


def test_one_label_that_varies_is_enough_for_a_set(with_set: Any) -> None:
    with_set.frame["soft"] = "0"
    assert labels_of(with_set.spec(**EVERY_KIND)).warnings == (
        "label set 'looks': 1 of 2 labels are not in the train split and cannot be predicted "
        "(soft)",
        *(
            f"label set 'looks': 1 of 2 labels have no positive in the {split} split and count as "
            "0 in its mAP (soft); leave them out of data.multi_hot, or split otherwise"
            for split in ("val", "test")
        ),
    )


@pytest.mark.parametrize("task", ["looks", "tone"])
def test_label_noise_is_for_tasks_with_classes(with_set: Any, task: str) -> None:
    with pytest.raises(ValueError, match=f"must name tasks with classes, got '{task}'"):
        with_set.spec(**EVERY_KIND, label_noise={task: 0.5})


def test_a_split_emptied_by_bad_images_is_refused(files: Any, tmp_path: Path) -> None:
    """The split sizes are checked again after the images are decoded.

    The message has the number of items in each split.
    """
    for row in (3, 8, 13, 18):
        (files.images / f"{row}.jpg").unlink()
    with pytest.raises(DataError, match=r"the val split has no images \(train 12, val 0, test 4\)"):
        open_dataset(files.spec(max_bad_images=0.5), view_size=16, store=tmp_path / "store")


@pytest.mark.parametrize("field", ["tasks", "held_out"])
def test_classes_of_the_test_split_alone_change_no_other_code(files: Any, field: str) -> None:
    """Such classes get codes after all others, here although their names sort first and last.

    Their items count as errors, not as missing, and no such class is the majority: no classifier
    can predict it.
    """
    files.frame["brand"] = files.frame["kind"]
    before = labels_of(files.spec(**{field: ["brand"]}))
    assert before.unseen == {}
    files.frame.loc[[4, 9, 14], "brand"] = ["0", "z", "z"]
    table = labels_of(files.spec(**{field: ["brand"]}))
    assert table.classes["brand"] == before.classes["brand"] == ("a", "b")
    assert table.size_of("brand") == 2
    assert table.unseen == {"brand": ("0", "z")}
    assert table.labels["brand"][[4, 9, 14]].tolist() == [2, 3, 3]
    assert majority_shares(table, ["brand"]) == {"brand": 0.25}
    assert table.known("brand").all()
    others = np.delete(np.arange(20), [4, 9, 14])
    assert (table.labels["brand"][others] == before.labels["brand"][others]).all()
    told = "2 of 4 classes are not in the train split and cannot be predicted (0, z)"
    assert table.warnings == (f"label column 'brand': {told}",)
