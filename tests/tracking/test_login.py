"""Logins for MLflow go only to addresses that the user named, and are not part of a spec."""

import shlex
from contextlib import nullcontext
from pathlib import Path

import pytest
from pydantic import ValidationError

from mtcon_ray.errors import UserError
from mtcon_ray.spec.resources import TrackingSpec
from mtcon_ray.tracking import login
from mtcon_ray.tracking.mlflow_server import check_server, open_client
from tests.cli import conftest
from tests.tracking.conftest import Sweep

SERVER = "https://mlflow.example.com"
LOOPBACK = "http://127.0.0.1:5000"
PLAIN = "http://mlflow.lan:5000"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a home folder without logins; so is the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    others = ("NETRC", "MLFLOW_TRACKING_AWS_SIGV4", login.URI_VARIABLE, login.TRUST_VARIABLE)
    for name in (*login.LOGINS, *others):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


ADDRESSES = [
    (SERVER, SERVER, "", None), (f"{SERVER}:443/path", f"{SERVER.upper()}/other", "", None),
    (SERVER, "", "", "names that address"),
    (SERVER, f"{SERVER}:8443", "", "names that address"),
    (SERVER, SERVER.replace("https", "http"), "", "names that address"),
    (SERVER, f"{SERVER}.evil.com", "", "names that address"),
    (SERVER, "", f"{LOOPBACK} {SERVER}", None), (LOOPBACK, LOOPBACK, "", None),
    (LOOPBACK, "http://127.0.0.1:5001", "", "names that address"),
    ("http://[::1]:5000", "http://[::1]:5000", "", None),
    (PLAIN, PLAIN, "", "plain HTTP sends it in clear text"), (PLAIN, PLAIN, PLAIN, None),
    ("sqlite:////r/mlflow.db", "", "", None), ("databricks://profile", "", "", None),
]  # fmt: skip


@pytest.mark.parametrize(("uri", "own", "trusted", "reason"), ADDRESSES)
def test_a_login_goes_to_addresses_of_the_user(
    monkeypatch: pytest.MonkeyPatch, uri: str, own: str, trusted: str, reason: str | None
) -> None:
    monkeypatch.setenv(login.URI_VARIABLE, own)
    monkeypatch.setenv(login.TRUST_VARIABLE, trusted)
    login.check_login(uri)  # without a login any login.address is asked
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    if reason is None:
        return login.check_login(uri)
    with pytest.raises(UserError, match=reason) as refused:
        login.check_login(uri)
    message, where = str(refused.value), login.address(uri)
    assert f"`--trust-tracking {where}`, or set {login.TRUST_VARIABLE}={where}" in message
    assert "s3cret" not in message
    for connect in (check_server, open_client):
        with pytest.raises(UserError, match=reason):
            connect(uri)


WITH_LOGIN = [
    *("https://TOKEN@host", "https://me:@host", "http://good\\@bad", "postgresql://u:p/w@h/d"),
    *("https://me:a/b@host", "https://me:a@b@host", "https://host?access=1&token=x"),
    *(f"https://h/?a=b&{key}=x" for key in ("api_key", "access_key", "sas", "%74oken")),
    *(f"postgresql://h/d?user=me&{key}=x" for key in ("password", "passfile", "key")),
    "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dy",
]


@pytest.mark.parametrize("uri", WITH_LOGIN)
def test_a_spec_holds_no_login_and_may_name_any_place(uri: str) -> None:
    with pytest.raises(ValidationError, match=r"tracking\.uri must hold no password and no token"):
        TrackingSpec(uri=uri)
    for other in (
        *("https://host:8443/mlflow", "sqlite:////home/me@work/mlflow.db", "databricks://work"),
        "postgresql+psycopg://me@h:5432/d?sslmode=require&sslkey=/etc/client.key",
    ):
        assert TrackingSpec(uri=other).uri == other


@pytest.mark.parametrize("variable", [*login.LOGINS, "MLFLOW_TRACKING_AWS_SIGV4"])
def test_each_variable_with_a_login_counts(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(UserError, match=f"the login in {variable} is not sent"):
        login.check_login(LOOPBACK)


LOGIN_FILES = [
    (".mlflow/credentials", "[mlflow]\nmlflow_tracking_password = s3cret\n", True),
    (".netrc", "machine 127.0.0.1 login me password s3cret\n", True),
    (".netrc", "default login me password s3cret\n", True),
    (".netrc", "machine other login me password s3cret\n", False),
]


@pytest.mark.parametrize(("file", "text", "counts"), LOGIN_FILES)
def test_each_file_with_a_login_counts(home: Path, file: str, text: str, counts: bool) -> None:
    (home / file).parent.mkdir(exist_ok=True)
    (home / file).write_text(text)
    (home / file).chmod(0o600)
    told = pytest.raises(UserError, match=f"the login in ~/{file} is not sent")
    with told if counts else nullcontext():
        login.check_login(LOOPBACK)


DATABASES = [
    *("postgresql://me@evil/d", "postgresql://db#?host=evil", "postgresql://db:1/@evil/d"),
    *("postgresql://db/d?service=prod", "mysql+pymysql://db/d?read_default_file=~/.my.cnf"),
    *("mssql+pyodbc://?odbc_connect=x", "postgresql://a,b/d?x=1,2&y='"),
]


@pytest.mark.parametrize("uri", DATABASES)
def test_databases_of_others_need_consent(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """Also without a login: its driver may find one anywhere."""
    monkeypatch.setenv(login.URI_VARIABLE, "postgresql://db/d")
    with pytest.raises(UserError, match="a login that its driver may find is not sent") as refused:
        login.check_login(uri)
    if login.masked(uri) == uri:
        command, setting = str(refused.value).partition(login.TRUST_VARIABLE)[::2]
        assert shlex.split(command.split("`")[1]) == ["--trust-tracking", uri]
        monkeypatch.setenv(login.TRUST_VARIABLE, f"{SERVER} {shlex.split(setting[1:])[0]}")
        login.check_login(uri)
        monkeypatch.delenv(login.TRUST_VARIABLE)
    else:
        assert str(refused.value).endswith(f"set {login.URI_VARIABLE} to it")
    monkeypatch.setenv(login.URI_VARIABLE, f"{uri}/")
    login.check_login(uri)


@pytest.mark.parametrize("malformed", ["https://me:s3cret@h:80x", "http://[x", "https://evil\\@h"])
def test_a_malformed_address_is_named(monkeypatch: pytest.MonkeyPatch, malformed: str) -> None:
    for name in (login.URI_VARIABLE, login.TRUST_VARIABLE, "tracking.uri"):
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "x")
        with monkeypatch.context() as patch:
            patch.setenv(name, malformed)
            with pytest.raises(UserError, match=name) as refused:
                login.check_login(malformed if name == "tracking.uri" else SERVER)
        assert "must be http(s)://host:port, got '" in str(refused.value)
        assert "s3cret" not in str(refused.value)


PLACES = [
    ("https://evil/a", SERVER, True), (f"{SERVER}/a", "sqlite:////r/mlflow.db", False),
    ("mlflow-artifacts:/a", "http://evil", False), ("mlflow-artifacts://evil/a", SERVER, True),
    ("file:///home/me", "sqlite:////r/mlflow.db", True), ("file:///home/me", SERVER, False),
    ("s3://bucket/a", "http://evil", True), ("s3://bucket/a", "databricks", False),
    ("file:///r/mlartifacts/1/artifacts", "sqlite:////r/mlflow.db", False),
    ("/r/mlartifacts/1/artifacts", "http://evil", False),
    ("file:///r/mlartifacts/../.ssh", "http://evil", True),
    ("/r/mlartifacts?/../../home/me", "http://evil", True),
    ("mlartifacts/1", "http://evil", True), ("", "http://evil", True),
]  # fmt: skip


@pytest.mark.parametrize(("location", "uri", "is_refused"), PLACES)
def test_files_of_runs_go_where_the_user_chose(
    monkeypatch: pytest.MonkeyPatch, location: str, uri: str, is_refused: bool
) -> None:
    monkeypatch.setenv(login.URI_VARIABLE, SERVER)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    with pytest.raises(UserError) if is_refused else nullcontext():
        login.check_place(location, uri, "checkpoints/model.pt")


def test_no_file_of_a_run_goes_through_a_link(tmp_path: Path) -> None:
    place = tmp_path / "mlartifacts" / "1" / "artifacts"
    place.mkdir(parents=True)
    (place / "export").symlink_to(tmp_path)
    with pytest.raises(UserError, match="is a link to"):
        login.check_place(place.as_uri(), "sqlite:////r/mlflow.db", "export")


def test_a_received_folder_gets_no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command fails before it asks the address, at which nobody listens."""
    log = Sweep(tmp_path / "sweeps" / "theirs", LOOPBACK).begin().path
    log.with_name("spec.yaml").write_text(
        f"{{name: t, tracking: {{uri: '{LOOPBACK.replace('5000', '9')}'}},"
        " data: {kind: synthetic}, search: {space: {train.lr: {grid: [0.1]}}, sampler: grid}}"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    monkeypatch.setenv(login.TRUST_VARIABLE, "")
    for option in ((), ("--repair",)):
        told = conftest.refused("audit", "theirs", "--root", tmp_path, *option)
        assert "is not sent to the tracking server http://127.0.0.1:9:" in told
