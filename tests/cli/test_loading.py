"""The packages that a command may import: it shall answer before they are loaded."""

from pathlib import Path

import pytest

from tests.processes import IN_TURN, run_python
from tests.stored_sweep import copy_stored

HEAVY = (
    "torch", "torch._dynamo", "torchvision", "pandas", "ray", "ray.tune", "mlflow", "optuna",
    "matplotlib",
)  # fmt: skip


def loaded_by(*lines: str) -> dict[str, set[str]]:
    """Returns the heavy packages that are loaded after each of these command lines."""
    told = run_python("-c", IN_TURN, *lines).stdout.splitlines()
    ends = [line.split("|") for line in told if line.startswith("ended|")]
    assert [code for _, _, code, *_ in ends] == ["0"] * len(lines), told
    return {line: {*HEAVY} & {*modules} for _, line, _, *modules in ends}


def test_help_and_commands_that_show_results_load_nothing_heavy(tmp_path: Path) -> None:
    copy_stored(tmp_path / "sweeps" / "old")
    shown = [f"{words} --root {tmp_path}" for words in ("list", "status old", "best old")]
    lines = ["--help", "--version", "sweep --help", "schema", *shown]
    assert loaded_by(*lines) == {line: set() for line in lines}


@pytest.mark.slow
def test_a_plan_waits_for_neither_tune_nor_mlflow(tmp_path: Path) -> None:
    """It does not wait for torchvision, unless it builds a ResNet.

    No training loads torch's compiler.
    """
    more = "--set data.num_items=200 --set train.epochs=1 --set views.size=8 --set method=moco"
    lines = list[str]()
    for command, encoder in (("validate", "resnet18"), ("plan", "small")):
        spec = tmp_path / f"{encoder}.yaml"
        spec.write_text(f"{{name: tiny, data: synthetic, model: {{encoder: {encoder}}}}}")
        lines.append(f"{command} {spec} --set storage.root={tmp_path}")
    lines.append(f"train {spec} --root {tmp_path} --set tracking.offline=true {more}")
    validated, planned, trained = loaded_by(*lines).values()
    assert not validated & {"optuna", "ray.tune", "mlflow", "torchvision", "torch._dynamo"}
    assert not planned & {"ray.tune", "mlflow", "torchvision"}
    assert not trained & {"ray.tune", "torchvision", "torch._dynamo"}
