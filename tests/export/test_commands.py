"""Tests of `mtcon-ray export`, and of its files read as their README.md shows."""

import json
import re
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from click.testing import CliRunner
from PIL import ExifTags, Image
from torch import Tensor

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.cli.main import program
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.export.trained_network import open_checkpoint

pytestmark = [pytest.mark.photos, pytest.mark.slow]

SIZE, STORED = 24, 30
FILES = (
    "README.md", "heads.safetensors", "model.json", "model.pt2", "probes.safetensors",
    "weights.safetensors",
)  # fmt: skip


def command(*words: str | Path) -> str:
    result = CliRunner().invoke(program, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """Returns a root with a ResNet-18 trained for one epoch on 200 photographs of shoes."""
    folder = tmp_path_factory.mktemp("work")
    shoes = photos / "fashion_shoes"
    lines = (shoes / "labels.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "labels.csv").write_text("".join(lines[:201]), encoding="utf-8")
    data = {
        "kind": "table", "csv": str(folder / "labels.csv"),
        "images": str(shoes / "images.tar.gz"),
        "tasks": ["category", "gender"], "held_out": ["brand"], "held_out_top_k": 3,
        "resize": "crop",
    }  # fmt: skip
    spec = {
        "name": "shoes",
        "data": data,
        "views": {"size": SIZE},
        "model": {"encoder": {"name": "resnet18"}},
        "train": {"epochs": 1, "warmup_epochs": 0, "batch_size": 32},
        "evaluate": {"bootstrap": 10},
        "tracking": {"offline": True},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    command("train", folder / "spec.yaml", "--root", folder / "root", "--name", "shoes-1")
    return folder / "root"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> list[Path]:
    """Returns a photograph, and an enlarged one with an EXIF orientation.

    The latter is decoded at reduced size.
    """
    folder = tmp_path_factory.mktemp("pictures")
    with tarfile.open(photos / "fashion_shoes" / "images.tar.gz") as tar:
        file = tar.extractfile("images/1541.jpg")
        assert file is not None
        data = file.read()
    (folder / "small.jpg").write_bytes(data)
    image = Image.open(BytesIO(data))
    lying = Image.Exif()
    lying[ExifTags.Base.Orientation] = 6
    large = image.resize((8 * image.width, 8 * image.height))
    large.save(folder / "large.jpg", exif=lying)
    return [folder / "small.jpg", folder / "large.jpg"]


def own_features(root: Path, picture: Path) -> tuple[Tensor, list[str]]:
    """Returns the trained network's features of an image file [1, D], and all labels' names."""
    best = root / "sweeps/shoes-1/checkpoints/trial-0000/model.pt"
    opened = open_checkpoint(best, root=root, callbacks=Callbacks())
    stored = decode_image(picture.read_bytes(), STORED, "crop")[None]
    features_1D = extract_features(
        opened.network, stored, np.arange(1), opened.spec.views, batch_size=1,
        device=torch.device("cpu"),
    )  # fmt: skip
    return features_1D, [*opened.dataset.tasks, *opened.dataset.held_out]


def assert_same(found: np.ndarray, expected: Tensor) -> None:
    largest = expected.abs().max().item()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * largest)


def read(folder: Path, picture: Path, load: str) -> dict[str, np.ndarray]:
    """Returns the outputs of a process that cannot import this package.

    It runs the README's code that reads an image, then `load`.
    """
    page = (folder / "README.md").read_text(encoding="utf-8")
    _, opening = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = "\n".join(
        [
            'import sys; sys.modules["mtcon_ray"] = None',
            opening.replace("photograph.jpg", str(picture)),
            load,
            'numpy.savez(sys.argv[1], embedding=found["embedding"], **found["labels"])',
        ]
    )
    found = picture.with_suffix(".npz")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(found)],
        cwd=folder, env={"PATH": "", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(np.load(found))


def test_three_lines_give_a_photographs_features(
    root: Path, tmp_path: Path, pictures: list[Path]
) -> None:
    """The three lines are those of the exported README.md."""
    told = command("export", "shoes-1", "--out", tmp_path / "out", "--root", root)
    assert ", ".join(FILES) in told
    lines = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    three = lines.split("```python\n")[1].split("```")[0]
    assert three.count("\n") == 3
    about = json.loads((tmp_path / "out" / "model.json").read_text(encoding="utf-8"))
    for picture in pictures:
        found = read(tmp_path / "out", picture, three)
        expected, names = own_features(root, picture)
        assert_same(found.pop("embedding"), expected)
        assert list(found) == names == ["category", "gender", "brand"]
        for name, values in found.items():
            assert values.shape == (1, len(about["labels"][name]["classes"]))
            assert values.sum() == pytest.approx(1)
