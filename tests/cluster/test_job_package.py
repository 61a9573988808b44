"""Environment of a job: its files, variables, versions and packages, and what must not be in it."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest
from ray._private.runtime_env.packaging import create_package

from mtcon_ray.cluster import job_package as pack
from mtcon_ray.errors import UserError


@pytest.mark.parametrize("has_code", [True, False])
def test_without_consent_no_code_is_uploaded(tmp_path: Path, has_code: bool) -> None:
    """By Ray's own packing, also if the folder's files of patterns ask for its modules."""
    folder = tmp_path / "work"
    code = ["numpy.py", "deep/yaml/__init__.py", "a.so", "x.dist-info/entry_points.txt"]
    kept = ["a.yaml", "deep/labels.csv", "pylist.txt", ".gitignore", ".rayignore"]
    for name in (*code, *kept, "ignored.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".rayignore").write_text("ignored.txt\n!numpy.py\n!*.py\n!x.dist-info/")
    (folder / ".gitignore").write_text("!numpy.py\n!*.so\n")
    environment = pack.job_environment(folder, {}, None, has_code=has_code)
    package = tmp_path / "package.zip"
    excludes = environment["excludes"]
    create_package(environment["working_dir"], package, include_gitignore=True, excludes=excludes)
    with ZipFile(package) as packed:
        names = {name for name in packed.namelist() if not name.endswith("/")}
    assert names == {*kept, *(code if has_code else ())}


def test_tracking_is_passed_to_a_job_and_no_key() -> None:
    places = {"MLFLOW_TRACKING_URI": "http://mlflow:5000", "AWS_ENDPOINT_URL": "http://store:9000"}
    environ = {**places, "AWS_SECRET_ACCESS_KEY": "canary"}
    found = pack.job_variables(environ, ["python", "a.py"])
    assert found.pop(pack.VERSIONS_VARIABLE) == json.dumps(pack.versions())
    assert found == places
    environment = pack.job_environment(Path(), found, None, has_code=False)
    assert environment["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "60", **places}
    assert "pip" not in environment


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({"MLFLOW_TRACKING_URI": "postgresql://me:hunter2@host/db"}, []),
        ({}, ["python", "a.py", "--set", "tracking.uri=http://me:hunter2@host"]),
    ],
)
def test_a_password_is_refused(environ: dict[str, str], command: list[str]) -> None:
    with pytest.raises(UserError, match="holds a password") as told:
        pack.job_variables(environ, command)
    assert "hunter2" not in str(told.value)


def test_packages_are_installed_by_pip_and_hold_no_password(tmp_path: Path) -> None:
    path = tmp_path / "needed.txt"
    path.write_text("timm>=1.0  # encoders\n")
    environment = pack.job_environment(tmp_path, {}, path, has_code=False)
    assert environment["pip"] == str(path)
    assert environment["config"]["setup_timeout_seconds"] > 600, "Ray's own, for gigabytes"
    path.write_text("timm\nx @ https://me:hunter2@host/x.whl\n")
    with pytest.raises(UserError, match="holds a password") as told:
        pack.job_environment(tmp_path, {}, path, has_code=False)
    assert "hunter2" not in str(told.value)


def test_a_job_finds_the_versions_of_whoever_submitted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop without a GPU may submit to a cluster with GPUs."""
    here = {"ray": "2.60.0", "python": "3.12.4", "torch": "2.15.0+cpu"}
    monkeypatch.setattr(pack, "version", lambda name: here.get(name, "1.0"))
    monkeypatch.setattr(pack, "python_version", lambda: here["python"])
    asked = json.dumps(pack.versions())
    here.update(ray="2.60.3", python="3.12.11", torch="2.15.0+cu130")
    pack.check_versions(asked)
    pack.check_versions(None)
    here["ray"] = "2.61.0"
    with pytest.raises(UserError, match=r"has ray 2\.61 \(you: 2\.60\); install"):
        pack.check_versions(asked)
