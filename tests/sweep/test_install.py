"""A job's own environment: this one's versions and packages of the user's, on every node."""

import subprocess
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sweep.test_jobs import User

SCRIPT = """
import sys
import ray
import mtcon_probe
import mtcon_ray
from mtcon_ray.cli.main import main

@ray.remote
def worker():
    import mtcon_probe
    return mtcon_probe.ANSWER, sys.prefix, mtcon_ray.__file__

if __name__ == "__main__":
    ray.init(log_to_driver=False)
    print("driver:", mtcon_probe.ANSWER, sys.prefix, mtcon_ray.__file__)
    print("worker:", *ray.get(worker.remote()))
    ray.shutdown()
    main(["sweep", "spec.yaml", *sys.argv[1:]])
"""
SHORT = [
    "--set", "train.epochs=1", "--set", "evaluate.every=1", "--set", "search.space={}",
    "--set", "search.sampler=random", "--set", "search.num_trials=1",
]  # fmt: skip


def thin_environment(folder: Path) -> Path:
    """A virtual environment with this one's packages, of which Ray copies some megabytes only."""
    venv.create(folder, with_pip=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "all.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = folder / "bin" / "ray"
    program.write_text(f"#!{folder}/bin/python\nfrom ray.scripts.scripts import main\n\nmain()\n")
    program.chmod(0o755)
    return folder / "bin"


def make_wheel(folder: Path) -> Path:
    """A package that no index has."""
    path = folder / "mtcon_probe-1.0-py3-none-any.whl"
    info = "mtcon_probe-1.0.dist-info"
    files = {
        "mtcon_probe.py": "ANSWER = 'installed'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: mtcon-probe\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path


@pytest.mark.ray
def test_a_job_brings_its_environment(
    tmp_path: Path, home: dict[str, str], head: Callable[[], str]
) -> None:
    """Driver and worker run in it, a resumed job too; one that cannot be made is told."""
    home["PATH"] = f"{thin_environment(tmp_path / 'thin')}:{home['PATH']}"
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=home, check=True, capture_output=True
    )
    user = User(tmp_path / "work", {**home, "RAY_API_SERVER_ADDRESS": head()})
    (user.folder / "mtcon_ray").unlink()
    (user.folder / "script.py").write_text(SCRIPT)
    needed = user.folder / "needed.txt"
    needed.write_text(f"# mine\nmtcon-probe @ file://{make_wheel(tmp_path)}\n")
    code, printed = user.run("submit", "script.py", "--requirements", "needed.txt", *SHORT)
    assert code == 0, printed
    assert "environment: packages in the versions of here" in printed
    lines = dict(line.split(": ", 1) for line in printed.splitlines() if ": installed" in line)
    assert set(lines) == {"driver", "worker"}
    (found,) = {tuple(line.split()[1:]) for line in lines.values()}
    assert "/runtime_resources/pip/" in found[0]
    assert "/runtime_resources/py_modules_files/" in found[1]
    assert "winner: trial-0000" in printed

    code, printed = user.run("resume", "script-1")
    assert code == 0, printed
    assert "driver: installed" in printed

    needed.write_text("mtcon-absent==1.0\n")
    code, printed = user.run("submit", "script.py", "--requirements", "needed.txt", *SHORT)
    assert code == 1
    assert "job script-2-1 was never started, for its environment could not be made:" in printed
    assert "No matching distribution found for mtcon-absent==1.0" in printed
    assert "runtime_env_agent.py" not in printed, "Ray's own trace"
