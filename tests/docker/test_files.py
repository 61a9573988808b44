"""The Dockerfile, compose.yaml and the start scripts, with Slurm's, without a Docker engine."""

import json
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.data.objects import Objects
from tests.data.signed_store import signed_store
from tests.processes import run

DOCKER = Path(__file__).parents[2] / "docker"
TOOLS = Path(sys.executable).parent
SCRIPTS = [*DOCKER.glob("*.sh"), *DOCKER.parent.glob("cluster/slurm/*.sbatch")]
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")


def test_the_dockerfile_and_the_scripts_keep_the_linters_rules() -> None:
    run([TOOLS / "hadolint", DOCKER / "Dockerfile"])
    run([TOOLS / "shellcheck", *SCRIPTS])
    for script in SCRIPTS:
        assert "\nset -euo pipefail\n" in script.read_text(encoding="utf-8")
        assert script.stat().st_mode & stat.S_IXUSR


def test_every_image_that_runs_is_an_ordinary_user_and_has_a_health_check() -> None:
    texts = re.split(r"(?m)^FROM ", DOCKERFILE)[1:]
    by_name = {text.split("\n", 1)[0].rsplit(" ", 1)[-1]: text for text in texts}
    assert "\nUSER 10001\n" in by_name["runtime"]
    for name, base in (("cli", "runtime"), ("node", "runtime"), ("mlflow", "base")):
        assert by_name[name].startswith(f"{base} AS ")
        assert "\nHEALTHCHECK " in by_name[name]
        assert "USER root" not in by_name[name]
    assert "\nUSER 10001\n" in by_name["mlflow"]
    assert {"cpu", "cuda"} <= by_name.keys()
    assert set(re.findall(r"ARG PACKAGE_INDEX=(.*)", DOCKERFILE)) == {'""'}


def test_everything_is_pinned() -> None:
    built = {service["image"] for service in SERVICES.values() if "build" in service}
    images = [s["image"] for s in SERVICES.values() if s["image"] not in built]
    images += re.findall(r"ARG PYTHON=(.*)", DOCKERFILE)
    assert len(images) == 3
    assert [image for image in images if not re.search(r"\d+\.\d+", image)] == []
    installs = re.findall(r"pip install (?:\\\n|[^\n])*", DOCKERFILE)
    assert len(installs) == 6
    assert all("-c constraints.txt" in text or "--no-index" in text for text in installs)


def test_ports_are_this_machines_alone() -> None:
    ports = {name: s["ports"] for name, s in SERVICES.items() if "ports" in s}
    assert ports.keys() == {"head", "mlflow"}
    assert all(port.startswith("127.0.0.1:") for group in ports.values() for port in group)
    networks = COMPOSE["networks"]
    assert [n for n, kind in networks.items() if kind != {"internal": True}] == ["work"]
    of = {n: {s for s, each in SERVICES.items() if n in each["networks"]} for n in networks}
    assert (of["store"], of["artifacts"]) == ({"mlflow", "postgres"}, {"mlflow", "s3"})


def test_no_service_has_rights_that_it_does_not_need() -> None:
    for service in SERVICES.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["pids_limit"] > 0
    assert {name for name, s in SERVICES.items() if not s["read_only"]} == {"head", "worker"}
    assert {"-ip.bind=127.0.0.1", "-s3.ip.bind=0.0.0.0"} < set(SERVICES["s3"]["command"])
    assert [name for name, service in SERVICES.items() if "cap_add" in service] == ["s3"]
    assert SERVICES["postgres"]["user"] == "postgres"


def test_the_databases_password_is_copied_to_memory_alone() -> None:
    """Artifacts must not be in memory: they pass through /tmp, which stays on disk.

    Without an owner, the tmpfs belongs to root after a restart and MLflow cannot start again.
    """
    server = SERVICES["mlflow"]
    [user] = set(re.findall(r"(?m)^USER (.*)", DOCKERFILE))
    [memory] = server["tmpfs"]
    path, options = memory.split(":")
    assert path == server["environment"]["PRIVATE"] != "/tmp"
    assert f"uid={user}" in options.split(",")
    assert '-p "${PRIVATE:-' in (DOCKER / "mlflow.sh").read_text(encoding="utf-8")


def test_each_service_has_only_the_secrets_that_it_needs_by_their_paths() -> None:
    assert {name: s["secrets"] for name, s in SERVICES.items()} == {
        "head": ["ray_token", "s3_nodes"],
        "worker": ["ray_token", "s3_nodes"],
        "mlflow": ["postgres_password", "s3_mlflow"],
        "postgres": ["postgres_password"],
        "s3": ["s3_server"],
    }
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|SECRET|CREDENTIAL|KEY", name):
                assert value.startswith("/run/secrets/"), name


def test_secrets_are_made_once_and_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    run([DOCKER / "secrets.sh", folder])
    first = {p.name: p.read_text() for p in folder.iterdir()}
    run([DOCKER / "secrets.sh", folder])
    assert {p.name: p.read_text() for p in folder.iterdir()} == first
    assert len(set(first.values())) == 5
    assert first.keys() == {Path(each["file"]).name for each in COMPOSE["secrets"].values()}
    assert re.fullmatch("[0-9a-f]{48}", first["ray_token"])
    clients = json.loads(first["s3_server.json"])["identities"]
    assert [c["actions"] for c in clients] == [["Admin:mlflow"], ["Admin:mtcon-ray"]]
    for client in clients:
        key = first[f"s3_{client['name']}"].split("aws_secret_access_key = ")[1].strip()
        assert client["credentials"][0]["secretKey"] == key
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("head", "start --head --block --num-cpus=0 --dashboard-host=0.0.0.0 --num-gpus=0"),
        ("worker", "start --block --address=there:6379 --num-gpus=0"),
    ],
)
def test_a_node_starts_with_the_token(tmp_path: Path, role: str, expected: str) -> None:
    """`ray` is a script here that prints its arguments."""
    (tmp_path / "ray").write_text('#!/bin/sh\necho "$@" $RAY_AUTH_MODE\n')
    (tmp_path / "ray").chmod(0o755)
    (tmp_path / "token").write_text("t")
    base = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RAY_HEAD": "there:6379"}
    command, variable = [str(DOCKER / "ray.sh"), role, "--num-gpus=0"], "RAY_AUTH_TOKEN_PATH"
    with_token, without = ({**base, variable: str(tmp_path / n)} for n in ("token", "none"))
    assert run(command, env=with_token).stdout == f"{expected} token\n"
    for environment in (base, without):
        assert "token" in run(command, env=environment, code=1).stderr


def test_nodes_write_to_the_root_s_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store checks signatures. The key comes from a file like the secret of the nodes."""
    node = SERVICES["head"]["environment"]
    run([DOCKER / "secrets.sh", tmp_path])
    key_file = tmp_path / "s3_nodes"
    lines = key_file.read_text().splitlines()
    with signed_store(monkeypatch) as store:
        for at, name in ((1, "AWS_ACCESS_KEY_ID"), (2, "AWS_SECRET_ACCESS_KEY")):
            lines[at] = f"{lines[at].split(' = ')[0]} = {store.variables[name]}"
            monkeypatch.delenv(name)
        key_file.write_text("\n".join(lines))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(key_file))
        for _ in range(2):  # at each start of the head
            run([sys.executable, DOCKER / "make_bucket.py", node["BUCKET"]])
        root = Objects(node["MTCON_RAY_ROOT"])
        root.write("sweeps/x", b"content")
        assert root.read("sweeps/x") == b"content"
