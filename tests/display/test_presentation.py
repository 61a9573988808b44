"""Commands and sentences of the report."""

import shlex
from dataclasses import replace
from pathlib import Path

import yaml

from mtcon_ray.display.presentation import commands, gauge_warnings
from mtcon_ray.display.results_table import training_warnings
from mtcon_ray.spec.run_spec import dump_spec, load_spec
from tests.display.conftest import MakeSweep

NOISE = "data.label_noise.heel height"


def test_winner_command_gives_back_its_values(sweep: MakeSweep, tmp_path: Path) -> None:
    """The command is parsed by the shell and the spec's reader; its names need quoting."""
    params = {NOISE: 1e-05, "method.temperature": 0.1, "train.max_grad_norm": None}
    search = {
        NOISE: {"uniform": [0, 0.5]},
        "method.temperature": {"loguniform": [0.03, 1]},
        "train.max_grad_norm": {"choice": [None, 1.0]},
    }
    results = sweep(points=[params], search=search, tasks=["heel height"])
    results = replace(results, trials=(replace(results.trials[0], seed=7),))
    file = tmp_path / "my spec.yaml"
    (_, whole), (_, alone) = commands(results, file)
    assert shlex.split(whole) == ["mtcon-ray", "sweep", str(file)]
    words = shlex.split(alone.replace("\\\n", ""))
    assert words[:3] == ["mtcon-ray", "train", str(file)]
    file.write_text(yaml.safe_dump(dump_spec(results.spec)))
    spec = load_spec(file, [w for w in words[3:] if w != "--set"])
    assert spec.data.label_noise == {"heel height": 1e-05}
    assert spec.method.model_dump()["temperature"] == 0.1
    assert spec.train.max_grad_norm is None
    assert spec.seed == 7


def test_gauges_of_a_method_say_that_it_has_learned_nothing() -> None:
    fine = {"triplet_accuracy": 0.9, "cosine/positive": 0.8, "cosine/random": 0.3}
    assert gauge_warnings(fine) == []
    (triplets,) = gauge_warnings(fine | {"triplet_accuracy": 0.53})
    assert triplets.startswith("the network orders 53% of its own triplets right, by chance 50%")
    (alone,) = gauge_warnings({"cosine/positive": 0.999, "cosine/random": 0.998})
    assert alone.startswith("positive pairs are as similar as random pairs: it has coll")
    heads = {"cosine/positive/shape": 0.9, "cosine/random/shape": 0.1, "cosine/positive/tilt": 0.2}
    (one,) = gauge_warnings(heads | {"cosine/random/tilt": 0.2})
    assert "pairs in the space of tilt: " in one
    assert training_warnings(heads | {"cosine/random/tilt": 0.2, "probe/gradient": 1.0})[0] == one
