"""Tests of `mtcon-ray prepare`, on a small tree of UC Merced's format and one of CelebA's."""

from pathlib import Path

import pytest
import yaml

from mtcon_ray.spec.recipes import RECIPES
from mtcon_ray.spec.run_spec import load_spec, parse_spec
from tests.cli.conftest import Invoke, accepted, refused
from tests.data.sources import trees


def test_a_download_is_checked_and_decoded_once(invoke: Invoke, tmp_path: Path) -> None:
    """The spec on standard output is valid. With -q it is all that is printed."""
    root, here = trees.ucmerced(tmp_path / "merced"), tmp_path / "here"
    command: list[object] = ["prepare", "ucmerced", "--root", root]
    for each in ("views.size=16", "train.batch_size=8", "data.resize=crop", f"storage.root={here}"):
        command += ["--set", each]
    first, again, quiet = accepted(*command), invoke(*command), invoke(*command, "-q")
    assert "  items     42 train, 6 val, 12 test\n" in first.stderr
    assert "  tasks     labels (4 labels)\n  held out  land_use (3 classes)\n" in first.stderr
    assert "warning: 60 images, where 2,100 are published\n" in first.stderr
    assert "] decoding images: 60/60\n" in first.stderr
    decoded = f"60 of 20 x 20 pixels are decoded, 72.0 kB in {here}/store\n"
    assert f"  images    {decoded}" in first.stderr
    assert "decoding" not in again.stderr
    assert (quiet.stdout, quiet.stderr) == (first.stdout, "")
    assert yaml.safe_load(first.stdout)["data"] == {
        "kind": "ucmerced", "root": str(root), "resize": "crop",
        "tasks": ["labels"], "held_out": ["land_use"],
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(first.stdout)
    assert invoke("validate", tmp_path / "spec.yaml").exit_code == 0
    spec = load_spec(tmp_path / "spec.yaml")
    assert (spec.views.size, spec.storage.root) == (16, str(here))


def test_missing_parts_are_listed_with_their_origin(tmp_path: Path) -> None:
    assert refused("prepare", "ucmerced", "--root", tmp_path) == (
        f"error: the data set in {tmp_path} is not complete; missing:\n"
        "  images: UCMerced_LandUse/Images or Images, from UCMerced_LandUse.zip of "
        "http://weegee.vision.ucmerced.edu/datasets/landuse.html\n"
        "  labels: LandUse_Multilabeled.txt or UCMerced_LandUse/LandUse_Multilabeled.txt or "
        "multilabels/LandUse_Multilabeled.txt, from multilabels.zip of "
        "https://bigearth.eu/datasets\n"
    )


def test_another_kind_is_refused(tmp_path: Path) -> None:
    told = "KIND must be a published data set, got 'table'; known: celeba, c"
    assert told in refused("prepare", "table", "--root", tmp_path)


@pytest.mark.parametrize("kind", RECIPES)
def test_a_relative_root_starts_at_the_spec(kind: str, tmp_path: Path) -> None:
    raw = {"version": 1, "name": kind, "data": {"kind": kind, "root": "files"}}
    raw |= {"method": RECIPES[kind].get("method", "mtcon")}
    assert parse_spec(raw, folder=tmp_path).data.model_dump()["root"] == str(tmp_path / "files")
