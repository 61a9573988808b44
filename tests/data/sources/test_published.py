"""Tests of every published data set: parts, broken files, recipes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.download import DownloadSource
from mtcon_ray.errors import DataError
from mtcon_ray.spec.recipes import RECIPES
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec, with_values
from tests.data.sources.downloads import labels_of, replace_text, source_of
from tests.data.sources.trees import BINARY, PHOTOGRAPHS, Made

KINDS = [*PHOTOGRAPHS, *BINARY]
# Side of views in pixels, encoder and batch size of the papers, but ours for ucmerced.
PAPERS = {
    "zappos50k": (112, "resnet18", 64), "medic": (224, "resnet50", 64),
    "cub200": (224, "resnet50", 64), "celeba": (64, "resnet50", 128),
    "stl10": (96, "resnet18", 512), "cifar10": (32, "resnet18", 512),
    "cifar100": (32, "resnet18", 512), "ucmerced": (128, "resnet18", 64),
}  # fmt: skip


def test_these_are_all_kinds() -> None:
    downloads = {kind for kind in SOURCES if issubclass(SOURCES[kind], DownloadSource)}
    assert {*KINDS} == downloads == RECIPES.keys() == PAPERS.keys()


MISSING_PARTS = [
    ("celeba", {}, "splits", "list_eval_partition.txt or Eval/list_eval_partition.txt or lis"),
    ("cub200", {}, "names of attributes", "attributes.txt or CUB_200_2011/attributes/attribu"),
    ("medic", {}, "val labels", "MEDIC_dev.tsv or dev.tsv or data/MEDIC_dev.tsv or data/dev"),
    ("zappos50k", {"split": "csn"}, "triplets", "tripletlists, from csn_zappos_triplets.zi"),
    ("cifar100", {}, "train.bin", "cifar-100-binary/train.bin or train.bin, from cifar-100-bi"),
    ("stl10", {"unlabeled": 1}, "unlabeled_X.bin", "stl10_binary/unlabeled_X.bin or unlabeled"),
]


@pytest.mark.parametrize(("kind", "fields", "what", "places"), MISSING_PARTS)
def test_a_missing_part_is_named_with_its_origin(
    tmp_path: Path, kind: str, fields: Mapping[str, Any], what: str, places: str
) -> None:
    """A part that only an option needs is missing only with the option."""
    source = source_of(kind, tmp_path, **fields)
    (line,) = [line for line in source.missing() if line.startswith(f"{what}: {places}")]
    assert source.page in line or "https://" in line
    with pytest.raises(DataError, match=r" \(.*, from .* of http.*\) not found in data\.root"):
        source.read_labels()
    if fields:
        assert not [line for line in source_of(kind, tmp_path).missing() if line.startswith(what)]


CUB, ATTR, SPLIT = "CUB_200_2011/", "list_attr_celeba.txt", "list_eval_partition.txt"
SHOES, LAND, RATED = "ut-zap50k-data/meta-data.csv", "LandUse_Multilabeled.txt", "attributes/"
BROKEN = [
    ("celeba", ATTR, "6\n", "", "must begin with its number of images, got '5_o_Clock_Shadow"),
    ("celeba", ATTR, "000002.jpg  1", "000002.jpg  1 1", "just 5 fields in each line"),
    ("celeba", ATTR, "000002.jpg", "../../000002.jpg", "must name files inside"),
    ("celeba", SPLIT, "3.jpg 0", "3.jpg 3", "0, 1 or 2 .* got 3 for 000003.j"),
    ("celeba", SPLIT, "000003.jpg", "x.jpg", "got None for 000003.jpg"),
    ("cub200", CUB + "images.txt", "001.Bl", "../../../001.Bl", "images.txt must name files in"),
    ("cub200", CUB + "train_test_split.txt", "2 1\n", "", "have the images of .*images.txt in"),
    ("cub200", CUB + "train_test_split.txt", "2 1\n", "2 yes\n", "just 2 fields in each line"),
    ("cub200", CUB + RATED + "image_attribute_labels.txt", "1 3 1 4", "1 3 1 x", "at least 4 fi"),
    ("medic", "MEDIC_dev.tsv", "crisismmd/4", "../../x", r"files inside .*, got '../../x\.jpg'"),
    ("ucmerced", LAND, "river03\t", "river03\t2", "column 'airplane' .* hold 0"),
    ("zappos50k", SHOES, ",Gender,", ",gender,", "column 'Gender'; did you"),
    ("zappos50k", SHOES, "9-1", "../x", "must name files inside .*jpg'"),
]


@pytest.mark.parametrize(("kind", "file", "old", "new", "message"), BROKEN)
def test_a_broken_file_is_named(
    tmp_path: Path, made: Made, kind: str, file: str, old: str, new: str, message: str
) -> None:
    replace_text(made(kind) / file, old, new)
    with pytest.raises(DataError, match=message) as raised:
        labels_of(kind, tmp_path)
    assert Path(file).name in str(raised.value)


def test_words_for_nothing_are_doubted(tmp_path: Path, made: Made) -> None:
    replace_text(made("medic") / "MEDIC_dev.tsv", "\tflood", "\tnan")
    (warning,) = labels_of("medic", tmp_path).warnings
    assert warning.startswith("label column 'disaster_types': 'nan' (1 rows, first row 2 of MEDIC")


@pytest.mark.parametrize("kind", PHOTOGRAPHS)
def test_line_ends_of_windows_make_no_difference(tmp_path: Path, kind: str) -> None:
    ends = {"unix": "\n", "windows": "\r\n"}.items()
    a, b = (labels_of(kind, PHOTOGRAPHS[kind](tmp_path / name, end)) for name, end in ends)
    np.testing.assert_equal(vars(a), vars(b))


def spec_on(kind: str, **sections: Any) -> RunSpec:
    data = {"kind": kind, "root": "somewhere"}
    return parse_spec({"name": "x", "data": data, "method": "simclr", **sections})


@pytest.mark.parametrize("kind", KINDS)
def test_size_encoder_and_batch_are_those_of_the_paper(kind: str) -> None:
    spec = spec_on(kind)
    assert (spec.views.size, spec.model.encoder.name, spec.train.batch_size) == PAPERS[kind]
    usual = RunSpec(name="x")
    assert (spec.train.epochs, spec.train.lr) == (usual.train.epochs, usual.train.lr)
    assert parse_spec(dump_spec(spec)) == spec
    data = {"name": "x", "data": dict(spec.data)}
    part = parse_spec({**data, "model": {"encoder": {"weights": None}}}).model.encoder
    assert part.name == RECIPES[kind]["model.encoder"]["name"]
    assert part.model_dump()["weights"] is None
    assert with_values(parse_spec(data), RECIPES[kind]).views.size == PAPERS[kind][0]


def test_a_field_that_is_given_stays_and_the_others_are_the_papers() -> None:
    spec = spec_on("medic", views={"size": 64, "hue": 0.0}, model={"encoder": "small"})
    assert (spec.views.size, spec.views.hue, spec.train.batch_size) == (64, 0.0, 64)
    assert spec.model.encoder.name == "small"
    spec = spec_on("stl10", train={"epochs": 3}, model={"head_dim": 32})
    assert (spec.train.epochs, spec.train.batch_size) == (3, 512)
    assert (spec.model.head_dim, spec.model.encoder.model_dump()["stem"]) == (32, "small")
