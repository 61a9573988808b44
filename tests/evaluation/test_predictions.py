"""Tests of stored predictions: content, and unreadable files."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.evaluation import predictions as stored
from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe
from mtcon_ray.evaluation.protocol import Measurement
from mtcon_ray.spec.evaluate import EvaluateSpec
from tests.some import some

TABLE = LabelTable(
    names=tuple("abcdef"),
    labels={"Colour": np.array([0, 1, 0, 0, -1, 1])},
    classes={"Colour": ("black", "white")},
    split=np.array([0, 0, 0, 2, 2, 2], dtype=np.int8),
    multi_hot={"tags": np.array([[0, 1]] * 3 + [[1, 255], [0, 1], [0, 0]], dtype=np.uint8)},
    multi_hot_names={"tags": ("x", "y")},
    unseen={"Colour": ("grey",)},
    groups={"shoe": np.array([0, 1, 2, 3, 4, 3])},
)
FEATURES = torch.tensor([[1.0, -1.0], [2.0, 0.0], [-3.0, 1.0]])
PLACES = {"Colour": ("heldout", "colour"), "tags": ("test", "tags")}


@pytest.fixture
def predictions() -> stored.Predictions:
    """Returns the predictions of probes with weights given here."""
    identity = torch.cat([torch.eye(2), torch.zeros(1, 2)])
    kinds: dict[str, Any] = {"Colour": "classes", "tags": "set"}
    probes = {label: LinearProbe(kind, label, identity, "") for label, kind in kinds.items()}
    measured = LabelledFeatures(FEATURES, {})
    measurement = Measurement(TABLE, measured, None, measured, PLACES, EvaluateSpec(), seed=0)
    return measurement.predictions(probes)


def test_known_items_truth_and_predictions(predictions: stored.Predictions, tmp_path: Path) -> None:
    """Each kind has them."""
    stored.save_predictions(tmp_path / "p.npz", "abc", predictions)
    again = some(stored.load_predictions(tmp_path / "p.npz"))
    assert again.keys() == {("heldout", "colour"), ("test", "tags")}
    classes, tags = again.values()
    assert (stored.kind_of(classes.truth), stored.kind_of(tags.truth)) == ("classes", "set")
    for found, *expected in (
        (classes, [3, 5], [0, 1], [0, 1], ["black", "white", "grey"], [3, 3]),
        (tags, [3, 4, 5], [[1, 255], [0, 1], [0, 0]], FEATURES.tolist(), ["x", "y"], [3, 4, 3]),
    ):
        assert [np.asarray(each).tolist() for each in vars(found).values()] == expected
    assert tags.predicted.dtype == np.float32


class Planted:
    """An object whose pickle ends the process when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, ("a pickle was run",)


def compressed(path: Path) -> None:
    """A small file of zeros may unpack to more than the memory."""
    with np.load(path) as file:
        np.savez_compressed(path, **dict(file))


def endless(path: Path) -> None:
    header = {"descr": "<i8", "fortran_order": False, "shape": (10**14,)}
    with ZipFile(path, "a") as file, file.open("test/x/scores.npy", "w") as part:
        np.lib.format.write_array_header_1_0(part, header)


def emptied(path: Path) -> None:
    with np.load(path) as file:
        np.savez(path, **{name: a[:0] if a.ndim else a for name, a in file.items()})


def with_array(name: str, array: np.ndarray) -> Callable[[Path], None]:
    def changed(path: Path) -> None:
        with np.load(path) as file:
            arrays: dict[str, Any] = dict(file)
        assert name in arrays
        np.savez(path, **{**arrays, name: array})

    return changed


DAMAGE = [
    Path.unlink,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"PK\x03\x04 cut"),
    compressed,
    emptied,
    endless,
    with_array("fingerprint", np.array([Planted()])),
    with_array("test/tags/scores", np.zeros((2, 1))),
    with_array("heldout/colour/predicted", np.array(["x", "y"])),
    with_array("heldout/colour/predicted", np.zeros(2, dtype=bool)),
    with_array("heldout/colour/truth", np.zeros(2)),
    with_array("heldout/colour/truth", np.zeros(2, dtype=">i8")),
    with_array("heldout/colour/predicted", np.zeros(2, dtype=np.longdouble)),
    *(with_array("test/tags/names", np.array(x)) for x in ("x", "7", "[7]", 99_999 * "[")),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_any_other_file_is_as_good_as_none_and_none_of_it_is_run(
    damage: Callable[[Path], None], predictions: stored.Predictions, tmp_path: Path
) -> None:
    path = tmp_path / "p.npz"
    stored.save_predictions(path, "abc", predictions)
    assert stored.load_predictions(path) is not None
    damage(path)
    assert stored.load_predictions(path) is None
