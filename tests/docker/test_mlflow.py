"""The server of compose.yaml under a team's load, on a real PostgreSQL."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtcon_ray.records.events import Artifact
from tests.docker.team import BUCKET, Team
from tests.tracking.conftest import MLFLOW, Sweep

pytestmark = MLFLOW


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Starts the server by docker/mlflow.sh."""
    team = Team(tmp_path_factory.mktemp("team"))
    try:
        team.start()
        yield team
    finally:
        team.stop()


def test_artifacts_go_through_the_server(team: Team, tmp_path: Path) -> None:
    """The client uploads and downloads without knowing the store or its keys."""
    from mlflow.artifacts import download_artifacts

    sweep = Sweep(tmp_path / "sweeps" / "artifacts", team.uri)
    parent = sweep.begin()
    (sweep.folder / "model.pt").write_bytes(b"weights" * 1000)
    parent.append(Artifact(path=str(sweep.folder / "model.pt"), to="checkpoints"))
    assert not sweep.send().refused
    run = sweep.run()
    assert run.info.artifact_uri.startswith("mlflow-artifacts:/")
    place = {"artifact_path": "checkpoints/model.pt", "dst_path": str(tmp_path / "back")}
    back = download_artifacts(run_id=run.info.run_id, tracking_uri=team.uri, **place)
    assert Path(back).read_bytes() == b"weights" * 1000
    host, port = team.s3.get_host_and_port()
    listed = urllib.request.urlopen(f"http://{host}:{port}/{BUCKET}").read().decode()
    assert "/artifacts/checkpoints/model.pt</Key>" in listed
    absent = f"{run.info.artifact_uri.removeprefix('mlflow-artifacts:/')}/absent.pt"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{team.uri}/api/2.0/mlflow-artifacts/artifacts/{absent}")
    assert refused.value.code == 404
    refused.value.close()
    # No client was redirected to the store, which in compose.yaml only the server can reach.
    assert "/presigned/" not in team.log()
    offered = urllib.request.urlopen(f"{team.uri}/api/3.0/mlflow/server-info").read()
    assert json.loads(offered)["multipart_downloads_enabled"] is False
    assert json.loads(offered)["multipart_uploads_enabled"] is False


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:5000", 200), ("mlflow:5000", 200), ("evil.example", 403)]
)
def test_only_its_own_hosts_are_answered(team: Team, host: str, status: int) -> None:
    request = urllib.request.Request(f"{team.uri}/version", headers={"Host": host})
    # the health check's request is allowed for any host
    assert urllib.request.urlopen(request).status == 200
    request = urllib.request.Request(f"{team.uri}/", headers={"Host": host})
    try:
        answer = urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        answer = error.code
    assert answer == status


def test_no_secret_is_in_an_environment_a_command_line_or_the_log(team: Team) -> None:
    """This covers the server and all processes that it has started."""
    values = [team.postgres.password.encode()]
    values += [
        line.split(" = ")[1].encode()
        for line in (team.secrets / "s3_mlflow").read_text().splitlines()
        if " = " in line
    ]
    assert len(values) == 3
    assert team.process
    processes = [
        p for p in Path("/proc").iterdir() if p.name.isdigit() and _group(p) == team.process.pid
    ]
    assert len(processes) > 1  # the server and its worker
    shown = b"".join((p / name).read_bytes() for p in processes for name in ("environ", "cmdline"))
    shown += team.log().encode()
    assert b"PGPASSFILE=" in shown
    assert [value for value in values if value in shown] == []


def _group(process: Path) -> int | None:
    try:
        return os.getpgid(int(process.name))
    except ProcessLookupError:
        return None
