"""The server of compose.yaml under a team's load, on a real PostgreSQL."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.docker.team import BUCKET, PASSWORD, Team, serving
from tests.tracking.conftest import MLFLOW, Sweep
from tests.waiting import status_of

pytestmark = MLFLOW


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Starts the server by docker/mlflow.sh."""
    with serving(tmp_path_factory.mktemp("team")) as team:
        yield team


def test_artifacts_go_through_the_server(team: Team, tmp_path: Path) -> None:
    """The client uploads and downloads without knowing the store or its keys."""
    from mlflow.artifacts import download_artifacts

    sweep = Sweep(tmp_path / "sweeps" / "artifacts", team.uri)
    sweep.begin().add_file("model.pt", "weights" * 1000, to="checkpoints")
    assert not sweep.send().refused
    run = sweep.run()
    assert run.info.artifact_uri.startswith("mlflow-artifacts:/")
    place = {"artifact_path": "checkpoints/model.pt", "dst_path": str(tmp_path / "back")}
    back = download_artifacts(run_id=run.info.run_id, tracking_uri=team.uri, **place)
    assert Path(back).read_text() == "weights" * 1000
    listed = urllib.request.urlopen(f"{team.store}/{BUCKET}").read().decode()
    assert "/artifacts/checkpoints/model.pt</Key>" in listed
    absent = f"{run.info.artifact_uri.removeprefix('mlflow-artifacts:/')}/absent.pt"
    assert status_of(f"{team.uri}/api/2.0/mlflow-artifacts/artifacts/{absent}") == 404
    # No client was redirected to the store, which in compose.yaml only the server can reach.
    assert "/presigned/" not in team.log()
    offered = json.loads(urllib.request.urlopen(f"{team.uri}/api/3.0/mlflow/server-info").read())
    assert {offered[f"multipart_{way}s_enabled"] for way in ("download", "upload")} == {False}


def test_only_its_own_hosts_are_answered(team: Team) -> None:
    for host, status in (("localhost:5000", 200), ("mlflow:5000", 200), ("evil.example", 403)):
        assert status_of(f"{team.uri}/", Host=host) == status
        assert status_of(f"{team.uri}/version", Host=host) == 200, "the health check's request"


def test_no_secret_is_in_an_environment_a_command_line_or_the_log(team: Team) -> None:
    """This covers the server and all processes that it has started."""
    values = [PASSWORD.encode()]
    values += re.findall(b" = (.*)", (team.folder / "secrets" / "s3_mlflow").read_bytes())
    assert len(values) == 3
    server = psutil.Process(team.process.pid)
    places = [Path(f"/proc/{each.pid}") for each in (server, *server.children(recursive=True))]
    assert len(places) > 1  # the server and its worker
    shown = b"".join((p / name).read_bytes() for p in places for name in ("environ", "cmdline"))
    shown += team.log().encode()
    assert b"PGPASSFILE=" in shown
    assert [value for value in values if value in shown] == []
