"""Environment of a job: the submitter's package versions and the user's packages on every node."""

import json
import shutil
import subprocess
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import files, version
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.user import REPOSITORY, User, ended

# The user's own file in the package. It is imported only within trials, needs a package that only
# the job's environment has, and writes down where it runs.
ENCODER = """
import json
import os
import sys
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Literal

import ray

import mtcon_ray
from mtcon_ray.models.encoders.base import ENCODERS
from mtcon_ray.models.encoders.small import Small

def place():
    probe = import_module("mtcon_probe").ANSWER if util.find_spec("mtcon_probe") else "none"
    return {"probe": probe, "prefix": sys.prefix, "package": mtcon_ray.__file__,
            "optuna": metadata.version("optuna")}

@ENCODERS.register("telling")
class Telling(Small):
    class Spec(Small.Spec):
        name: Literal["telling"] = "telling"

    def __init__(self, spec):
        super().__init__(spec)
        actor = ray.is_initialized() and ray.get_runtime_context().get_actor_id()
        if actor:
            Path(os.environ["PLACES"], actor).write_text(json.dumps(place()))
"""
SCRIPT = """
import json
import sys
from mtcon_ray.cli.main import main
from mtcon_ray.models.encoders.telling import place

if __name__ == "__main__":
    print("driver:", json.dumps(place()))
    main(["sweep", "spec.yaml", *sys.argv[1:]])
"""
SHORT = [
    "--set", "model.encoder={name: telling, width: 8}", "--set", "train.epochs=1",
    "--set", "evaluate.every=1", "--set", "search.space={}", "--set", "search.sampler=random",
    "--set", "search.num_trials=1",
]  # fmt: skip


def thin_environment(folder: Path) -> Path:
    """Creates a virtual environment that links this one's packages: Ray copies only megabytes."""
    venv.create(folder, with_pip=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "all.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = folder / "bin" / "ray"
    program.write_text(f"#!{folder}/bin/python\nfrom ray.scripts.scripts import main\n\nmain()\n")
    program.chmod(0o755)
    return folder / "bin"


def make_wheel(folder: Path, name: str, version: str, contents: dict[str, bytes]) -> Path:
    """Writes a pure Python wheel."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    told = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "".join(f"{each},,\n" for each in contents),
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for each, text in contents.items():
            wheel.writestr(each, text)
        for each, said in told.items():
            wheel.writestr(each, said)
    return path


def wheel_of_installed(folder: Path, name: str) -> Path:
    """Writes a wheel of the package that is installed here, as an index would provide it."""
    found = [each for each in files(name) or [] if each.parts[0] == name and each.suffix != ".pyc"]
    contents = {str(each): Path(each.locate()).read_bytes() for each in found}
    return make_wheel(folder, name, version(name), contents)


def prepare(tmp_path: Path, home: dict[str, str]) -> None:
    """Sets up a cluster with another Optuna; its pip has no index but a folder with our version."""
    programs = thin_environment(tmp_path / "thin")
    other = make_wheel(tmp_path, "optuna", "4.0.0", {"optuna/__init__.py": b"OTHER = True\n"})
    pip = [str(programs / "python"), "-m", "pip"]
    # Python 3.11's venv brings a setuptools that is too old for torch and would hide ours.
    for words in (["uninstall", "--yes", "setuptools"], ["install", "--no-deps", str(other)]):
        subprocess.run([*pip, *words], check=True, capture_output=True)
    index = wheel_of_installed(tmp_path / "index", "optuna").parent
    (tmp_path / "places").mkdir()
    home["PATH"] = f"{programs}:{home['PATH']}"
    home |= {
        "PLACES": str(tmp_path / "places"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
    }
    home.pop("PYTHONPATH", None)  # the package must come from the job only
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=home, check=True, capture_output=True
    )


class Installer(User):
    """A user whose copy of the package has an additional file."""

    def __init__(self, tmp_path: Path, environment: dict[str, str]) -> None:
        super().__init__(tmp_path / "work", environment)
        (self.folder / "mtcon_ray").unlink()
        (self.folder / "script.py").write_text(SCRIPT)
        package = shutil.copytree(
            REPOSITORY / "mtcon_ray",
            tmp_path / "mine" / "mtcon_ray",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (package / "models" / "encoders" / "telling.py").write_text(ENCODER)
        self.environment["PYTHONPATH"] = str(package.parent)
        self.places = tmp_path / "places"

    def trials_ran_in(self) -> list[dict[str, Any]]:
        """Returns where each process that trained since the last call ran; all are Ray actors."""
        found = sorted(self.places.iterdir())
        told = [json.loads(each.read_text()) for each in found]
        for each in found:
            each.unlink()
        return told


@pytest.mark.soak
@pytest.mark.ray
def test_a_job_brings_its_environment(
    tmp_path: Path, home: dict[str, str], head: Callable[[], str]
) -> None:
    """Driver and trials run in the job's environment, also on resume; setup errors are shown."""
    prepare(tmp_path, home)
    user = Installer(tmp_path, {**home, "RAY_API_SERVER_ADDRESS": head()})
    needed = user.folder / "needed.txt"
    probe = make_wheel(tmp_path, "mtcon_probe", "1.0", {"mtcon_probe.py": b"ANSWER = 'here'\n"})
    needed.write_text(f"# mine\nmtcon-probe @ file://{probe}\n")
    code, printed = user.run("submit", "script.py", "--requirements", "needed.txt", *SHORT)
    assert code == 0, printed
    assert "environment: packages in the versions of here" in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("driver: "))
    driver = json.loads(line.removeprefix("driver: "))
    assert (driver["probe"], driver["optuna"]) == ("here", version("optuna"))
    assert "/runtime_resources/pip/" in driver["prefix"]
    assert "/runtime_resources/py_modules_files/" in driver["package"]
    assert user.trials_ran_in() == [driver]
    assert "winner: trial-0000" in printed

    (user.folder / "absent.txt").write_text("mtcon-absent==1.0\n")
    others = [
        user.begin("resume", "script-1"),
        # Without the user's packages it is another environment, which a distributed trial's workers
        # use too.
        user.begin("submit", "spec.yaml", "--install", *SHORT, "--set", "resources.workers=2"),
        user.begin("submit", "script.py", "--requirements", "absent.txt", *SHORT),
    ]
    (code, resumed), (bare_code, bare), (absent_code, absent) = map(ended, others)
    assert code == 0, resumed
    assert line in resumed
    assert bare_code == 0, bare
    assert "winner: trial-0000" in bare
    places = user.trials_ran_in()
    assert len(places) == 2
    assert {(place["probe"], place["optuna"]) for place in places} == {("none", version("optuna"))}
    (prefix,) = {place["prefix"] for place in places}
    assert "/runtime_resources/pip/" in prefix != driver["prefix"]
    assert absent_code == 1
    assert "job script-2-1 was never started, for its environment could not be made:" in absent
    assert "No matching distribution found for mtcon-absent==1.0" in absent
    assert "runtime_env_agent.py" not in absent, "Ray's own trace"
