"""The package as others install it: from a wheel, and with the core's packages alone."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import specs
from tests.pages import DOCS, REPOSITORY, own_environment, run_by, run_shell

PAGE = (DOCS / "installing.md").read_text(encoding="utf-8")
# The demo is run whole; the sweep of its spec is made smaller.
SMALL = (
    "--set data.num_items=300 --set views.size=16 --set train.epochs=2 --set evaluate.bootstrap=20"
)


def run_blocks(test: str, folder: Path, more: str) -> str:
    """Runs the page's commands for a test and `more` in a folder; returns what they print."""
    blocks = run_by(f"tests/test_installing.py::{test}")
    code = "".join(block.code for block in blocks).replace("CHECKOUT", str(REPOSITORY))
    code = code.replace("sweep spec.yaml", f"sweep spec.yaml --name mine {SMALL}")
    try:
        return run_shell(code.replace("NAME", "mine") + more, folder, own_environment(folder))
    finally:
        for environment in (".venv", "core"):
            shutil.rmtree(folder / environment, ignore_errors=True)  # gigabytes


def test_the_page_installs_what_the_core_needs() -> None:
    (line,) = re.findall(r"^pip install .*constraints.txt (torch .*)", PAGE, re.M)
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    core = re.findall(r'^ *"(.+?)"', re.split("# The core: |# Around it.", text)[1], re.M)
    assert set(core) < set(tomllib.loads(text)["project"]["dependencies"])
    assert line.split() == [Requirement(package).name for package in core]


@pytest.mark.soak
def test_the_core_runs_from_a_wheel_with_its_packages_alone(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    (tmp_path / "page.py").write_text(code)
    (tmp_path / "spec.yaml").write_text(json.dumps({**specs.TINY, "name": "small"}))
    example = REPOSITORY / "examples" / "training_loop.py"
    name = "test_the_core_runs_from_a_wheel_with_its_packages_alone"
    printed = run_blocks(name, tmp_path, f"python {example}\npython page.py\npip list")
    assert "test/accuracy/shape" in printed
    assert (tmp_path / "exported" / "model.pt2").exists()
    listed = {line.split()[0] for line in printed.partition("Package ")[2].splitlines()[2:]}
    assert "torch" in listed
    assert not {"ray", "mlflow", "optuna", "click", "rich"} & listed


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
def test_a_wheel_runs_without_the_repository(tmp_path: Path) -> None:
    """Every command of docs/installing.md, in an environment of its own with all packages.

    Then commands on the sweep. ONNX is an extra of its own.
    """
    more = (
        "mtcon-ray audit mine\n"
        "mtcon-ray export mine --to onnx --out onnx && exit 1\n"
        f"pip install -q -c {REPOSITORY}/constraints.txt onnx onnxscript\n"
        "mtcon-ray export mine --to onnx --out onnx\n"
        "python -c 'import mtcon_ray; print(mtcon_ray.__file__)'; mtcon-ray -q examples new; ls new"
    )
    printed = run_blocks("test_a_wheel_runs_without_the_repository", tmp_path, more)
    assert printed.count("winner: trial-") == 2
    assert "mine: all records agree" in printed
    assert re.search("^onnx: .*README.md", printed, re.M)
    assert "temperature-1" in printed
    package, *copied = printed.split()[-5:]
    assert Path(package).is_relative_to(tmp_path / ".venv")
    assert copied == ["cluster", "docs", "examples", "experiments"]
