"""Tests of an exported folder: atomic, usable without this package, equal to the evaluation."""

import json
import re
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from safetensors.torch import load_file, save_file

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import CARD_FILE
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.errors import CheckpointError, UserError
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.export.model import ExportedModel
from mtcon_ray.export.trained_network import evaluate_checkpoint, load_network, open_checkpoint
from mtcon_ray.export.write import _states, card_text, export_checkpoint
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.encoders.torchvision import ResNet18
from mtcon_ray.models.network import Network
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.run import train_once
from tests import processes, specs
from tests.cli.conftest import run

Found = dict[str, np.ndarray]

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
# A process that cannot import this package. It opens images by the code of the exported README.md.
READ = """
import sys, os
sys.modules["mtcon_ray"] = None
os.chdir(sys.argv[1])
"""
SAVE_PT2 = 'numpy.savez(sys.argv[3], embedding=found["embedding"], **found["labels"])'
# Torch 2.11 warns of its own buffer.
TORCH_2_11 = "ignore:The given buffer is not writable:UserWarning"
FILES = [
    "README.md", "heads.safetensors", "model.json", "model.pt2", "probes.safetensors",
    "weights.safetensors",
]  # fmt: skip
MODEL = "sweeps/mine-1/checkpoints/trial-0000/model.pt"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a root with a short training on classes and a label set."""
    root = tmp_path_factory.mktemp("root")
    data = {"kind": "synthetic", "num_items": 150, "tasks": ["shape", "attributes"]}
    evaluate = {"bootstrap": 20, "every": 2}
    tracking = {"offline": True, "uri": "http://canary:5000"}
    spec = {**specs.TINY, "name": "mine", "data": data, "evaluate": evaluate, "tracking": tracking}
    spec["model"] = {**specs.TINY["model"], "embedding_dim": 12}
    train_once(parse_spec(spec), root=root, callbacks=Callbacks())
    return root


@pytest.fixture(scope="module")
def opened(root: Path) -> Evaluation:
    return open_checkpoint(root / MODEL, root=root, callbacks=Callbacks())


@pytest.fixture(scope="module")
def exported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that the command writes."""
    out = tmp_path_factory.mktemp("exported") / "out"
    assert ", ".join(FILES) in run("export", "mine-1", "--out", out, "--root", root).output
    return out


def export(root: Path, to: Path, **options: Any) -> dict[str, Any]:
    return export_checkpoint(root / MODEL, to, root=root, callbacks=Callbacks(), **options)


def features_of(opened: Evaluation, images: np.ndarray) -> torch.Tensor:
    """Returns the trained network's features of stored images."""
    given = opened.network, images, np.arange(len(images)), opened.spec.views
    return extract_features(*given, batch_size=64, device=opened.device)


def assert_same(found: np.ndarray, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def read_pt2(folder: Path, images: np.ndarray | Path, tmp_path: Path) -> Found:
    """Returns the outputs of the README.md's code for images or a file. Warnings are errors."""
    page = (folder / "README.md").read_text(encoding="utf-8")
    opening, shown, several = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    if isinstance(images, Path):
        Image.new("RGB", (20, 90)).save(other := tmp_path / "other.png")
        shown += several + "assert (embeddings[0] == found['embedding'][0].numpy()).all()\n"
        names = {"photograph.jpg": str(images), "another.jpg": str(other)}
    else:
        np.save(tmp_path / "images.npy", images)
        opening, names = "import numpy; images = numpy.load(sys.argv[2])\n", {}
    code = reduce(lambda text, name: text.replace(*name), names.items(), opening + shown)
    processes.run(
        [sys.executable, "-W", "error", "-W", TORCH_2_11, "-c", READ + code + SAVE_PT2,
         str(folder), str(tmp_path / "images.npy"), str(tmp_path / "found.npz")],
        cwd=tmp_path, env={"PATH": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return dict(np.load(tmp_path / "found.npz"))


def read_onnx(folder: Path, images: np.ndarray | Path, tmp_path: Path) -> Found:
    session = pytest.importorskip("onnxruntime").InferenceSession(folder / "model.onnx")
    names = [output.name.removeprefix("labels/") for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"images": images}), strict=True))


def blocks_of_page() -> list[str]:
    """Returns the Python of docs/export.md."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def read_about(path: Path) -> dict[str, Any]:
    """Returns labels and preprocessing from a model file, by the code in docs/export.md."""
    file = f'"exported{"-onnx" if path.suffix == ".onnx" else ""}/{path.name}"'
    (code,) = (block for block in blocks_of_page() if file in block and "about" in block)
    names: dict[str, Any] = {}
    exec(code.replace(file.strip('"'), str(path)), names)
    return {part: json.loads(names["about"][part]) for part in ("labels", "preprocessing")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:onnxscript.*")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.onnx.*")
def test_what_is_exported_is_what_was_evaluated(
    root: Path, opened: Evaluation, exported: Path, tmp_path: Path, kind: str
) -> None:
    folder, read = exported, read_pt2
    if kind == "onnx":
        folder, read = tmp_path / "out", read_onnx
        export(root, folder, format=kind)
    facts = json.loads((folder / "model.json").read_text())
    rows = opened.dataset.table.rows("test")
    images = np.array(opened.dataset.images[rows])
    found, expected = read(folder, images, tmp_path), features_of(opened, images)
    assert_same(found["embedding"], expected)
    # Logits of these probes reach 100, whose float32 rounding error is about 1e-5.
    for label, probe in opened.full_measurement().fit().probes.items():
        y = probe.scores(expected)
        values = y.sigmoid() if label == "attributes" else y.softmax(dim=1)
        np.testing.assert_allclose(found[label], values, rtol=0, atol=1e-4, err_msg=label)
    right = found["tilt"].argmax(1) == opened.dataset.table.labels["tilt"][rows]
    assert right.mean() == pytest.approx(facts["labels"]["tilt"]["score"]["test"])
    assert list(facts["labels"]) == ["shape", "attributes", "tilt"]
    assert facts["data"]["fingerprint"] == facts["data"]["trained_on"]
    assert facts["model"]["checkpoint"].keys() == {"epoch", "val/score"}
    for file in (f"model.{kind}", "weights.safetensors"):
        about = read_about(folder / file)
        assert about == {part: facts[part] for part in ("labels", "preprocessing")}, file


@pytest.mark.slow
def test_the_page_s_code_gives_features(opened: Evaluation, exported: Path, tmp_path: Path) -> None:
    """A photograph has the features of the evaluation, decoded smaller and turned as in EXIF."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    lying = Image.Exif()
    lying[ExifTags.Base.Orientation] = 6
    photograph = tmp_path / "large.jpg"
    Image.fromarray(pixels).resize((480, 320)).save(photograph, exif=lying)
    found = read_pt2(exported, photograph, tmp_path)
    stored = decode_image(photograph.read_bytes(), opened.dataset.images.shape[1])[None]
    assert_same(found.pop("embedding"), features_of(opened, stored))
    assert list(found) == ["shape", "attributes", "tilt"]
    assert found["shape"].sum() == pytest.approx(1)


@pytest.mark.slow
def test_a_folder_names_contents_not_maker(root: Path, opened: Evaluation, exported: Path) -> None:
    """It says what it holds, and nothing of its maker."""
    written = sorted(exported.iterdir())
    assert [path.name for path in written] == FILES
    assert len({path.stat().st_mode for path in written}) == 1
    text, page = (exported / "model.json").read_text(), (exported / "README.md").read_text()
    facts = json.loads(text)
    assert str(root) not in text + page
    assert "canary" not in text + page
    assert facts["labels"]["shape"]["classes"] == list(opened.dataset.table.classes["shape"])
    assert "neighbours . photograph.jpg --among PHOTOS --head shape\n" in page
    assert "| attributes | yes | probability of each label | 8 | map " in page
    assert "may have been trained on" not in page
    facts["data"]["trained_on"] = "another"
    assert "may have been trained on" in card_text(facts)
    probes = load_file(exported / "probes.safetensors")
    assert probes["heads.0.weight_DC"].shape == (12, len(facts["labels"]["shape"]["classes"]))
    with pytest.raises(UserError, match="must name a new folder"):
        export(root, exported)
    again = evaluate_checkpoint(exported / "model.json", root=root, callbacks=Callbacks())
    assert "test/accuracy/shape" in again


@pytest.mark.slow
def test_an_export_is_a_start_for_another_training(root: Path, exported: Path) -> None:
    network = load_network(root / MODEL)[1]
    for weights in (exported / "weights.safetensors", root / MODEL):
        for key, value in Small(Small.Spec(width=4, weights=str(weights))).state_dict().items():
            assert torch.equal(value, network.encoder.state_dict()[key]), (weights, key)


@pytest.mark.slow
def test_an_export_with_probes_of_other_labels_can_be_loaded(root: Path, tmp_path: Path) -> None:
    facts = export(root, tmp_path / "out", overrides=["data.tasks=[colour]"])
    assert list(facts["labels"]) == ["colour", "tilt"]
    found = load_network(tmp_path / "out" / CARD_FILE)[1]
    assert found.names == load_network(root / MODEL)[1].names


def test_weights_have_torchvision_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As docs/export.md shows, only the classifier is missing, and nothing is left over."""
    torch.manual_seed(3)
    network = Network(ResNet18(ResNet18.Spec()), {})
    files = _states(ExportedModel(network, {}, parse_spec({"name": "a"})))
    save_file(files["weights.safetensors"], tmp_path / "weights.safetensors")
    (code,) = (b for b in blocks_of_page() if "load_state_dict" in b)
    names: dict[str, Any] = {}
    exec(code.replace("exported", str(tmp_path)), names)
    shown = capsys.readouterr().out
    assert "_IncompatibleKeys(missing_keys=['fc.weight', 'fc.bias'], unexpected_keys=[])" in shown
    theirs = names["net"]
    theirs.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(theirs.eval()(images), network.encoder.eval()(images))
    assert files["probes.safetensors"].keys() == {"view.weight_VS", "view.mean_C11", "view.std_C11"}


def test_nothing_is_left_of_an_export_that_fails(root: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        export_checkpoint(tmp_path / "none.pt", tmp_path / "out", root=root, callbacks=Callbacks())
    with pytest.raises(UserError, match="is an export"):
        export_checkpoint(tmp_path / CARD_FILE, tmp_path / "out", root=root, callbacks=Callbacks())
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        export(root, tmp_path / "file" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
