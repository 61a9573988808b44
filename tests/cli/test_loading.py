"""The packages that a command may import: it shall answer before they are loaded."""

from pathlib import Path

import pytest

from tests.processes import run_python
from tests.stored_sweep import copy_stored

HEAVY = (
    "torch", "torch._dynamo", "torchvision", "pandas", "ray", "ray.tune", "mlflow", "optuna",
    "matplotlib",
)  # fmt: skip


def loaded_by(*arguments: str) -> set[str]:
    """Returns the heavy packages that a command line imports, in a new process."""
    code = (
        "import sys\nfrom mtcon_ray.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print('|', *sys.modules, file=sys.stderr)\n"
    )
    done = run_python("-c", code, *arguments)
    return set(HEAVY) & set(done.stderr.rpartition("|")[2].split())


def test_help_and_version_load_nothing_heavy() -> None:
    assert loaded_by("--help") == set()
    assert loaded_by("--version") == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "encoder", "more"),
    [("validate", "resnet18", {"optuna"}), ("plan", "small", set()), ("plan", "resnet18", None)],
)
def test_a_plan_waits_for_neither_tune_nor_mlflow(
    tmp_path: Path, command: str, encoder: str, more: set[str] | None
) -> None:
    """It waits for neither torch's compiler nor torchvision, unless it builds a ResNet."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(f"{{name: tiny, data: synthetic, model: {{encoder: {encoder}}}}}")
    loaded = loaded_by(command, str(spec), "--set", f"storage.root={tmp_path}")
    assert not loaded & {"ray.tune", "mlflow"}
    assert more is None or not loaded & {"torchvision", "torch._dynamo", *more}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["list"], ["status", "old"], ["best", "old"], ["schema"], ["sweep", "--help"]]
)
def test_commands_that_show_results_load_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    copy_stored(tmp_path / "sweeps" / "old")
    where = [] if words[0] in ("schema", "sweep") else ["--root", str(tmp_path)]
    assert loaded_by(*words, *where) == set()
