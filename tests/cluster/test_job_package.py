"""Files, environment variables and versions of a job's package, and what must not be in it."""

import json
import re
from pathlib import Path

import pytest
from ray._private.ray_constants import DASHBOARD_CLIENT_MAX_SIZE
from ray._private.runtime_env.packaging import create_package, get_uri_for_directory

from mtcon_ray.cluster import job_package
from mtcon_ray.cluster.job_package import (
    VERSIONS_VARIABLE,
    check_upload,
    check_versions,
    job_environment,
    job_variables,
    measure_upload,
    read_requirements,
    versions,
    without_code,
)
from mtcon_ray.errors import ResourceError, UserError


def test_what_is_ignored_is_not_uploaded(tmp_path: Path) -> None:
    files = {"a.py": 10, "data/big.bin": 1000, "notes.txt": 20, "b/c.py": 5, ".venv/x": 900}
    for name, size in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / ".gitignore").write_text("data/\n")
    (tmp_path / ".rayignore").write_text("notes.txt\n")
    upload = measure_upload(tmp_path)
    kept = {".gitignore", ".rayignore", "a.py", "b/c.py", "b/"}
    assert {path for path, _ in upload.largest} == kept
    assert upload.num_files == 4
    size = upload.num_bytes
    assert size > 10 + 5 + 6 + 10
    assert check_upload(tmp_path, limit=size) == upload
    with pytest.raises(ResourceError, match=r"at most 0\.000\d+ MB, .* in 4 files of") as told:
        check_upload(tmp_path, limit=size - 1)
    assert "a.py" in str(told.value)


def test_the_package_s_size_is_known_before_it_is_made(tmp_path: Path) -> None:
    """Compares with Ray's own packing; includes non-ASCII names and nested folders."""
    folder = tmp_path / "work"
    for name, size in {"a.py": 10, "größe/b/c.bin": 100_000, "d/empty": 0, ".rayignore": 0}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    (folder / "broken").symlink_to(folder / "absent")
    package = tmp_path / "package.zip"
    create_package(str(folder), package, include_gitignore=True, excludes=[])
    assert 0 <= measure_upload(folder).num_bytes - package.stat().st_size <= 76


def test_what_the_dashboard_refuses_is_refused_here(tmp_path: Path) -> None:
    """The limit is the dashboard's: the GCS accepts 512 MiB. The file is sparse."""
    with (tmp_path / "weights.pt").open("wb") as file:
        file.truncate(DASHBOARD_CLIENT_MAX_SIZE)
    with pytest.raises(
        ResourceError, match=r"at most 104\.9 MB, for Ray's dashboard takes no more"
    ):
        check_upload(tmp_path)
    with (tmp_path / "weights.pt").open("wb") as file:
        file.truncate(DASHBOARD_CLIENT_MAX_SIZE - 1000)
    check_upload(tmp_path)


def test_a_folder_of_many_small_files_is_named(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / "runs" / str(number)).mkdir(parents=True)
        (tmp_path / "runs" / str(number) / "x").write_bytes(b"x" * 10)
    (tmp_path / "big.bin").write_bytes(b"x" * 100)
    assert measure_upload(tmp_path).largest[:2] == (("runs/", 200), ("big.bin", 100))


def test_nothing_that_can_be_imported_is_in_the_copy_without_code(tmp_path: Path) -> None:
    code = ("numpy.py", "deep/yaml/__init__.py", "a.so", "a.pyc", "x.dist-info/entry_points.txt")
    kept = ("a.yaml", "deep/labels.csv", "pylist.txt")
    for name in (*code, *kept, "ignored.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".rayignore").write_text("ignored.txt")
    with without_code(tmp_path) as folder:
        found = [path for path in folder.rglob("*") if path.is_file()]
        names = {str(path.relative_to(folder)) for path in found}
        assert names == {*kept, ".rayignore"}
        assert (folder / "deep/labels.csv").read_text() == "deep/labels.csv"
    assert not folder.exists()


def test_tracking_is_passed_to_a_job_and_no_key() -> None:
    places = {"MLFLOW_TRACKING_URI": "http://mlflow:5000", "AWS_ENDPOINT_URL": "http://store:9000"}
    environ = {**places, "AWS_SECRET_ACCESS_KEY": "canary"}
    found = job_variables(environ, ["python", "a.py"])
    assert found.pop(VERSIONS_VARIABLE) == json.dumps(versions())
    assert found == places


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({"MLFLOW_TRACKING_URI": "postgresql://me:hunter2@host/db"}, []),
        ({}, ["python", "a.py", "--set", "tracking.uri=http://me:hunter2@host"]),
    ],
)
def test_a_password_is_refused(environ: dict[str, str], command: list[str]) -> None:
    with pytest.raises(UserError, match="must hold no password") as told:
        job_variables(environ, command)
    assert "hunter2" not in str(told.value)


def test_a_job_finds_the_versions_of_whoever_submitted_it() -> None:
    check_versions(None)
    check_versions(json.dumps(versions()))
    asked = versions() | {"torch": "1.0.0"}
    with pytest.raises(UserError, match=rf"got torch {versions()['torch']}, not 1\.0\.0; install"):
        check_versions(json.dumps(asked))


def test_a_job_takes_another_patch_version_of_ray_and_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = {"ray": "2.60.0", "python": "3.12.4"}
    monkeypatch.setattr(job_package, "version", lambda name: here.get(name, "1.0"))
    monkeypatch.setattr(job_package, "python_version", lambda: here["python"])
    asked = json.dumps(versions())
    here.update(ray="2.60.3", python="3.12.11")
    check_versions(asked)
    here["ray"] = "2.61.0"
    with pytest.raises(UserError, match=r"got ray 2\.61, not 2\.60; install"):
        check_versions(asked)


def test_requirements_are_read_as_pip_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "needed.txt"
    path.write_text(
        "# mine\ntimm >= 1.0  # encoders\n\nx @ file:///x-1.whl#sha256=ab\ntokenizers==0.21.0\n"
    )
    found = ["timm>=1.0", "x @ file:///x-1.whl#sha256=ab", "tokenizers==0.21.0"]
    assert read_requirements(path) == found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "--constraint https://me:hunter2@host/pins.txt",
            "belongs into pip's settings on the nodes",
        ),
        ("x @ https://me:hunter2@host/x.whl", "give pip on the nodes the password"),
        ("--constraint pins.txt", "belongs into pip's settings on the nodes"),
        ("-r more.txt", "belongs into pip's settings on the nodes"),
        ("timm 1.0", "line 2, must name a package as pip does, got 'timm 1.0'"),
    ],
)
def test_other_lines_are_refused(line: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "needed.txt"
    path.write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=re.escape(told)) as caught:
        read_requirements(path)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must be a text file, got .*absent"):
        read_requirements(tmp_path / "absent.txt")


def test_a_job_brings_all_that_is_compared_but_python_and_ray() -> None:
    """Other dependencies of this package are included, those of its extras are not."""
    brought = job_environment(["timm>=1"])
    packages = brought["pip"]["packages"]
    named = {pin.partition("==")[0] for pin in packages}
    assert set(versions()) - named == {"python", "mtcon-ray", "ray"}
    assert {"pillow", "pyarrow"} < named
    assert not {"pytest", "sphinx", "ray"} & named
    assert packages[-1] == "timm>=1"
    assert f"torch=={versions()['torch']}" in packages
    assert brought["config"]["setup_timeout_seconds"] > 600, "Ray's own, for gigabytes"
    (ours,) = brought["py_modules"]
    assert (Path(ours) / "cluster" / "job_package.py").exists()


def test_what_python_compiles_does_not_change_the_package(tmp_path: Path) -> None:
    """Otherwise it would be uploaded again whenever a further module was imported."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.py").write_text("WIDTH = 8\n")

    def uri() -> str:
        return get_uri_for_directory(str(tmp_path), True, job_environment([])["excludes"])

    before = uri()
    (tmp_path / "models" / "__pycache__").mkdir()
    (tmp_path / "models" / "__pycache__" / "small.cpython-311.pyc").write_bytes(b"compiled")
    assert uri() == before
    (tmp_path / "models" / "large.py").touch()
    assert uri() != before


def test_another_python_is_no_reason_to_install() -> None:
    asked = versions() | {"python": "3.9"}
    with pytest.raises(UserError, match=r"a job cannot bring its own Python: submit from 3\.1"):
        check_versions(json.dumps(asked))


def test_how_a_package_was_built_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop without a GPU may submit to a cluster with GPUs."""
    monkeypatch.setattr(job_package, "version", lambda name: "2.15.0+cpu")
    assert versions()["torch"] == "2.15.0"
