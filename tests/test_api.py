"""The Python interface, as a script or notebook uses it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import mtcon_ray as mt
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.errors import SpecError, SweepError
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.export.trained_network import load_network
from tests import specs
from tests.cli.conftest import run
from tests.processes import REPOSITORY, run_program, run_python

SPEC: dict[str, Any] = {
    **specs.TINY,
    "name": "api",
    "search": {"space": {"method.temperature": {"grid": [0.1, 0.5]}}, "sampler": "grid"},
}
Trained = tuple[Path, mt.TrainingResult]  # the root, and the result of a training there
LOADED = """
import json, sys
before = set(sys.modules)
import mtcon_ray as mt
names = dir(mt)
own = {n for n in set(sys.modules) - before if n.split(".")[0] not in sys.stdlib_module_names}
assert own == {"mtcon_ray", "mtcon_ray.version"}, own
print(json.dumps([name for name in mt.__all__ if name in names and callable(getattr(mt, name))]))
"""
# A Ray of the caller's, with one CPU, and what a sweep must leave as it was.
IN_A_RAY_OF_ONES_OWN = """
import json, logging, os, signal, sys
import ray
import mtcon_ray as mt

if __name__ == "__main__":
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    session = ray.get_runtime_context().get_job_id()
    logger = logging.getLogger("ray.tune")
    def state():
        handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        return dict(os.environ), os.getcwd(), logger.handlers, logger.propagate, handlers

    before = state()
    spec = mt.load_spec(json.loads(sys.argv[1]))
    results = mt.run_sweep(spec, root="root", name="own")
    assert results.plan.concurrency == 1, "the caller's Ray has one CPU"
    assert ray.is_initialized()
    assert ray.get_runtime_context().get_job_id() == session
    assert state() == before
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
"""


@pytest.mark.slow
def test_importing_loads_nothing_heavy_and_offers_all_names() -> None:
    assert json.loads(run_python("-c", LOADED).stdout) == mt.__all__


def test_a_spec_of_a_mapping_is_checked_as_a_file_is(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC))
    changed = ["train.epochs=5"]
    assert mt.load_spec(SPEC, changed) == mt.load_spec(path, changed)
    assert mt.load_spec(SPEC, changed).train.epochs == 5
    assert SPEC["train"]["epochs"] == 2
    grid = {"grid": np.array([2, 4])}
    space = {"train.patience": grid, "train.batch_size": grid}
    ours = {"seed": np.int64(3), "search": {"space": space}, "storage": {"local": tmp_path}}
    shared = mt.load_spec({**SPEC, **ours})
    assert (shared.seed, shared.storage.local) == (3, str(tmp_path))
    assert [found.values for found in shared.search.space.values()] == [(2, 4)] * 2
    assert mt.load_spec({**SPEC, "data": shared.data}).data == shared.data
    for value in (object(), {"shape", "colour"}):
        with pytest.raises(SpecError, match="spec must hold plain values"):
            mt.load_spec({**SPEC, "plugins": value})
    with pytest.raises(SpecError, match=r"spec: train\.epoch: unknown key; did you mean 'epochs'"):
        mt.load_spec({**SPEC, "train": {"epoch": 1}})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    root = tmp_path_factory.mktemp("root")
    return root, mt.run_training(mt.load_spec(SPEC), root=root, name="one")


@pytest.mark.mlflow
def test_a_training_returns_its_metrics_and_network(trained: Trained) -> None:
    root, run = trained
    assert run.name == "one"
    assert run.checkpoint.is_file()
    assert 0 <= run.metrics["test/accuracy/shape"] <= 1
    results = mt.load_results("one", root=root)
    frame, history = results.to_frame(), results.history()
    assert frame.loc[0, "state"] == "finished"
    assert list(frame["value"]) == list(frame["val/accuracy"]) == [run.metrics["val/accuracy"]]
    assert run.value == frame.loc[0, "value"]
    assert list(history["epoch"]) == [1, 2]
    assert list(history["trial"]) == ["trial-0000", "trial-0000"]
    assert history["loss"].notna().all()
    with pytest.raises(SweepError, match="no sweep 'two'"):
        mt.load_results("two", root=root)


@pytest.mark.mlflow
def test_an_encoder_gives_the_features_of_the_probes(trained: Trained, tmp_path: Path) -> None:
    """For all forms of images; those of one size may be one array."""
    root, run = trained
    encoder = mt.load_encoder("one", root=root)
    assert not encoder.training
    pixels = np.random.default_rng(0).integers(0, 256, (3, 30, 24, 3), dtype=np.uint8)
    found = encoder.transform(pixels)
    assert found.shape == (3, encoder.width)
    assert found.dtype == np.float32
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file)
    stored = np.stack([decode_image(file.read_bytes(), encoder.size) for file in files])
    spec, network = load_network(run.checkpoint)
    given = network, stored, np.arange(3), spec.views
    expected = extract_features(*given, batch_size=3, device=torch.device("cpu"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for others in (files, [str(file) for file in files], map(Image.open, files), list(pixels)):
        np.testing.assert_array_equal(encoder.transform(others), found)
    np.testing.assert_allclose(encoder(torch.from_numpy(pixels)), found, rtol=1e-4, atol=1e-5)
    assert encoder.transform([]).shape == (0, encoder.width)
    assert list(encoder.embed(iter(files))["path"]) == [str(file) for file in files]
    exif, turned = Image.Exif(), tmp_path / "turned.png"
    exif[0x0112] = 6
    Image.fromarray(pixels[0][..., [0, 1, 2, 0]]).save(turned, exif=exif)  # transparent too
    with Image.open(turned) as opened:
        np.testing.assert_array_equal(encoder.transform([opened]), encoder.transform([turned]))
    with pytest.raises(ValueError, match="mode I;16 must be 8 bits"):
        encoder.transform([Image.new("I;16", (9, 9))])
    with pytest.raises(ValueError, match=r"images must be uint8 \[N, H, W, 3\], got torch.float32"):
        encoder(torch.zeros(1, 9, 9, 3))
    with pytest.raises(ValueError, match=r"must be a list, got the text 'a.png'"):
        encoder.embed("a.png")
    with pytest.raises(ValueError, match=r"got float64 \[30, 24, 3\]"):
        encoder.transform([pixels[0] / 255])


@pytest.mark.ray
@pytest.mark.mlflow
def test_a_sweep_in_the_caller_s_ray_leaves_everything_as_it_was(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(IN_A_RAY_OF_ONES_OWN)
    run_python(script, json.dumps(SPEC), cwd=tmp_path)
    results = mt.load_results("own", root=tmp_path / "root")
    frame = results.to_frame()
    assert results.report_path.is_file()
    assert set(frame["method.temperature"]) == {0.1, 0.5}
    assert frame.loc[0, "trial"] == results.required_winner().name
    assert frame["value"].is_monotonic_decreasing
    assert len(results.history()) == 4


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "python.md").read_text("utf-8")
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    code = "".join(re.findall(r"^```python\n(.*?)^```", page, re.S | re.M))
    assert run_program(code, tmp_path).stdout.endswith("(2, 32)\n")


def test_a_plan_prints_as_the_command_does(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC))
    plan = mt.make_plan(mt.load_spec(SPEC), root=tmp_path)
    assert plan.num_trials == 2
    assert run("plan", path, "--root", tmp_path).stdout == f"{plan}\n"
