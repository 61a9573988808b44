"""Choice and check of the tracking server, and masking of passwords in all messages."""

import shlex
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cluster.try_autoscaling import free_ports
from mtcon_ray.errors import SpecError, TrackingError, UserError
from mtcon_ray.tracking import mlflow_server as server
from mtcon_ray.tracking.login import URI_VARIABLE, masked
from tests.processes import run_python

ROOT = Path("/data/mtcon")


def test_spec_wins_over_environment_and_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URI_VARIABLE, "http://b:2/")
    for uri in ("http://a:1", "postgresql://u:p@h/db", "sqlite:////a/b.db", "databricks"):
        assert server.tracking_uri(uri, ROOT) == uri
    assert server.tracking_uri(None, ROOT) == "http://b:2"
    monkeypatch.setenv(URI_VARIABLE, "")
    assert server.tracking_uri(None, ROOT) == "sqlite:////data/mtcon/mlflow.db"


@pytest.mark.parametrize(
    "uri", ["sqlite:///mlflow.db", "sqlite://", "./mlruns", "file:///a/mlruns", "/a", "ftp://h"]
)
def test_relative_places_and_files_are_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match=r"^tracking\.uri must"):
        server.tracking_uri(uri, ROOT)
    monkeypatch.setenv(URI_VARIABLE, uri)
    with pytest.raises(SpecError, match=r"^MLFLOW_TRACKING_URI must .*; give sqlite:////"):
        server.tracking_uri(None, ROOT)


TEXTS = [
    ("http://u:s3cret@h:5000/x", "http://u:***@h:5000/x"),
    ("see http://u:s3/c@ret@h now", "see http://u:***@h now"),
    ("https://s3cret@h/", "https://***@h/"),
    ("postgresql://u@h/db", "postgresql://u@h/db"),
    ("postgresql://h/d?user=a&password=s3cret&x=1", "postgresql://h/d?user=a&password=***&x=1"),
    ("x --token s3cret --api-key='s3 cret' -q", "x --token *** --api-key=*** -q"),
    ("AWS_ACCESS_KEY_ID=AKIA1", "AWS_ACCESS_KEY_ID=***"),
    ("password authentication failed", "password authentication failed"),
    ("value: 'Bearer one\ntwo'", "value: 'Bearer ***'"),
    ("Authorization: Bearer one, two", "Authorization: Bearer *** two"),
    ("'Basic dXNlcjpwYXNz' Basic words", "'Basic ***' Basic words"),
    ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
    ("Authorization: s3cret", "Authorization: ***"),
    ('{"token": "s3 cret", "lr": 0.1}', '{"token": ***, "lr": 0.1}'),
    ("{'password': 's3cret', 'api_key':'s3'}", "{'password': ***, 'api_key':***}"),
    ("WANDB_API_KEY = s3cret", "WANDB_API_KEY = ***"),
    ("KEY = s3cret", "KEY = ***"),
    ("primary key = 3", "primary key = 3"),
    ("--set x=token=s3cret", "--set x=token=***"),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_masked(text: str, expected: str) -> None:
    assert masked(text) == expected


@pytest.mark.parametrize(
    "part", ["-", "token", "://a:", "token='", "--token ", "token ", '"token" ', "Authorization: "]
)
def test_masking_takes_time_in_proportion_to_the_text(part: str) -> None:
    """A pattern that goes back would need minutes, and one CPU second is ten times the usual."""
    begin = time.process_time()
    masked(part * (1_000_000 // len(part)))
    assert time.process_time() - begin < 5


NAMES = [
    ("plain", "sqlite:////r/plain/mlflow.db"),
    ("é a@b:c", "sqlite:////r/é a@b:c/mlflow.db"),
    ("q?x#1%41", "sqlite+pysqlite:////r/q%3Fx%231%2541/mlflow.db"),
]


@pytest.mark.parametrize(("name", "database"), NAMES)
def test_only_characters_of_a_uri_are_quoted(name: str, database: str) -> None:
    root = Path("/r") / name
    assert server.own_database(root) == server.tracking_uri(None, root) == database
    assert server.artifact_location(database, ROOT) == "file:///data/mtcon/mlartifacts"
    assert server.artifact_location("https://h", ROOT) is None
    words = ["audit", "shoes-1", "--repair", "--root", str(root)]
    assert shlex.split(server.sync_command(root / "sweeps" / "shoes-1").strip("`"))[1:] == words


EXPERIMENTS = [
    (server.own_database(ROOT), f"file://{ROOT}/mlartifacts", False),
    (server.own_database(ROOT), "file:///data/old/mlartifacts", True),
    (server.own_database(ROOT), "/data/old/mlartifacts", True),
    (server.own_database(ROOT), "file:///chosen/by/a/stranger", True),
    ("postgresql://h/db", "file:///tmp/mlartifacts", False),
    ("postgresql://h/db", "s3://bucket/mlartifacts", False),
]


@pytest.mark.parametrize(("uri", "location", "is_stray"), EXPERIMENTS)
def test_the_place_of_an_experiment(
    monkeypatch: pytest.MonkeyPatch, uri: str, location: str, is_stray: bool
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://h/db")
    experiment = Mock(lifecycle_stage="active", artifact_location=location)
    shown = location.removeprefix("file://")
    with pytest.raises(UserError, match=shown) if is_stray else nullcontext():
        server.check_experiment(experiment, uri, ROOT)


def test_command_that_opens_the_ui() -> None:
    sqlite = "mlflow ui --backend-store-uri sqlite:////r/mlflow.db --host 127.0.0.1 --port 5000"
    assert server.ui_command("sqlite:////r/mlflow.db") == sqlite
    assert "'sqlite:////r r/mlflow.db'" in server.ui_command("sqlite:////r r/mlflow.db")
    assert server.ui_command("http://u:p@h:5000") == "http://u:***@h:5000"
    assert "p@" not in server.ui_command("postgresql://u:p@h/db")


def test_first_line_names_the_cause() -> None:
    error = RuntimeError("Max retries exceeded\nwith url /api")
    assert server.first_line(error) == "Max retries exceeded"
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert server.first_line(error) == "[Errno 111] Connection refused"
    assert server.first_line(TimeoutError()) == "TimeoutError"
    refused = RuntimeError("no answer from postgresql://me:s3cret@host/db")
    assert server.first_line(refused) == "no answer from postgresql://me:***@host/db"
    error.__cause__ = OSError(5, "at http://me:s3cret@host")
    assert server.first_line(error) == "[Errno 5] at http://me:***@host"


@pytest.mark.mlflow
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the server without its password, and the ways out.

    A database that cannot be made does not answer.
    """
    (port,) = free_ports(1)
    monkeypatch.setenv(URI_VARIABLE, uri := f"http://me:s3cret@127.0.0.1:{port}")
    with pytest.raises(TrackingError) as caught:
        server.check_server(uri)
    message = str(caught.value)
    assert f"http://me:***@127.0.0.1:{port} does not answer: [Errno 111]" in message
    assert "tracking.offline: true" in message
    assert "s3cret" not in message
    (tmp_path / "file").touch()
    with pytest.raises(TrackingError, match="does not answer"):
        server.check_server(f"sqlite:///{tmp_path}/file/mlflow.db")


@pytest.mark.mlflow
def test_a_refused_login_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("API request failed with error code 401 != 200")
    monkeypatch.setattr(server, "open_client", Mock(side_effect=error))
    with pytest.raises(TrackingError, match=r"refuses the login: .*; set MLFLOW_TRACKING_USERNAME"):
        server.check_server("http://127.0.0.1:9")


@pytest.mark.mlflow
def test_somebody_listens_but_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.5)
    server.import_quietly()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begin = time.monotonic()
        with pytest.raises(TrackingError, match=r"no answer in 0\.5 s"):
            server.check_server(f"http://127.0.0.1:{mute.getsockname()[1]}")
        assert time.monotonic() - begin < 5


@pytest.mark.mlflow
def test_sqlite_is_made_once_and_silently(tmp_path: Path) -> None:
    """Two drivers that start together on a new root create one schema; nothing is printed.

    The root is a link of the user with the name of a folder of roots, and has files of others.
    """
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    others = [tmp_path / "runs" / name for name in ("uv.lock", "uv.building.txt")]
    for other in others:
        other.write_text("kept")
    uri = f"sqlite:///{tmp_path}/runs/uv"
    code = f"from mtcon_ray.tracking.mlflow_server import check_server;check_server('{uri}')"
    (work := tmp_path / "cwd").mkdir()
    quiet: dict[str, Any] = {**server.quiet_environment()}
    run = partial(run_python, "-c", code, cwd=work, **quiet)
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(run) for _ in range(2)]
    assert [(each.result().stdout, each.result().stderr) for each in both] == [("", "")] * 2
    assert list(work.iterdir()) == []
    assert [other.read_text() for other in others] == ["kept", "kept"]
    assert (tmp_path / "disk" / "uv").stat().st_size
