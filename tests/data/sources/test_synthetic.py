"""Tests of synthetic images: reproducible, the same at any size, with all factors visible."""

from itertools import combinations

import numpy as np
import pytest

from mtcon_ray.data import synthetic_images
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.files import DataSource
from mtcon_ray.data.synthetic_images import ATTRIBUTES, FACTORS, HUES, LARGE, VERSION, draw

SCENE = {"shape": "cross", "colour": "red", "texture": "plain", "tilt": "30", "mark": "disc"}


def drawn(**fields: object) -> DataSource:
    """Returns a source of 200 images."""
    source = SOURCES["synthetic"]
    return source(source.Spec.model_validate({"num_items": 200} | fields))


def test_pictures_depend_on_seed_and_row_alone() -> None:
    """Images do not depend on the other rows of the call, nor on the labels in use."""
    all_at_once = drawn().decode(range(6), 40)[0]
    assert (drawn(tasks=["mark"]).decode([4, 2], 40)[0] == all_at_once[[4, 2]]).all()
    assert (drawn(seed=1).decode([4], 40)[0] != all_at_once[4]).any()
    assert len(np.unique(all_at_once.reshape(6, -1), axis=0)) == 6


def test_labels_are_balanced_independent_and_split() -> None:
    """Each pair of classes of two factors occurs as often as the others, up to chance."""
    table = drawn(num_items=4000, tasks=["shape", "colour", "texture", "mark"]).read_labels()
    for first, second in combinations(table.labels, 2):
        counts = np.zeros((len(FACTORS[first]), len(FACTORS[second])))
        np.add.at(counts, (table.labels[first], table.labels[second]), 1)
        expected = 4000 / counts.size
        assert np.abs(counts - expected).max() < 4.5 * expected**0.5
    assert np.bincount(table.split).tolist() == [2800, 400, 800]


def test_labels_name_what_is_in_the_picture() -> None:
    """The label's hue dominates the centre of most images."""
    source = drawn(tasks=["colour", "texture"])
    table = source.read_labels()
    plain = np.flatnonzero(table.labels["texture"] == FACTORS["texture"].index("plain"))
    right = 0
    for row, picture in zip(plain, source.decode(plain.tolist(), 40)[0], strict=True):
        name = FACTORS["colour"][table.labels["colour"][row]]
        middle = picture[14:26, 14:26].reshape(-1, 3).astype(float)
        hues = np.cos(np.add.outer(2 * np.pi * np.array([*HUES.values()]), (0, -2.0944, 2.0944)))
        right += list(HUES)[(middle @ hues.T).sum(0).argmax()] == name
    assert right > 0.75 * len(plain)


@pytest.mark.parametrize("factor", list(FACTORS))
def test_each_factor_changes_the_picture(factor: str) -> None:
    """Any two classes of a factor differ in one scene."""
    pictures = [draw(SCENE | {factor: name}, 40, [0]).astype(int) for name in FACTORS[factor]]
    for one, other in combinations(pictures, 2):
        assert np.abs(one - other).max() > 40


def test_a_change_of_the_drawing_is_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixed image guards VERSION, which is part of the image store's key.

    After a change of the drawing, increase VERSION and update the expected values. Otherwise
    image stores made before the change would be used.
    """
    monkeypatch.setattr(synthetic_images, "OCCLUSION", 1.0)
    picture = draw(SCENE | {"texture": "checks"}, 32, [0, 0, 0])
    blocks = picture.reshape(4, 8, 4, 8, 3).mean(axis=(1, 3, 4))
    expected = [[38, 62, 53, 52], [49, 85, 55, 38], [114, 112, 57, 26], [54, 49, 58, 20]]
    assert np.abs(blocks - expected).max() < 3
    assert VERSION == 3


def test_attributes_follow_from_factors_and_size() -> None:
    factors = ["shape", "colour", "texture", "tilt"]
    table = drawn(tasks=["attributes"], held_out=factors, num_items=500).read_labels()
    assert (table.kind_of("attributes"), table.kind_of("shape")) == ("set", "classes")
    names = table.multi_hot_names["attributes"]
    named = dict(zip(names, table.multi_hot["attributes"].T, strict=True))
    for fact, (factor, classes) in ATTRIBUTES.items():
        codes = [table.classes[factor].index(name) for name in classes]
        assert (named[fact] == np.isin(table.labels[factor], codes)).all()
    large = [synthetic_images.object_size([0, 0, row]) > LARGE for row in range(500)]
    assert (named["large"] == large).all()
    assert all(0.3 < column.mean() < 0.9 for column in named.values())
