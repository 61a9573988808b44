"""Logins for MLflow go only to addresses that the user named, and are not part of a spec."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from mtcon_ray.cli.main import program
from mtcon_ray.errors import UserError
from mtcon_ray.resources import TrackingSpec
from mtcon_ray.tracking.login import LOGINS, TRUST_VARIABLE, URI_VARIABLE, address, check_login
from mtcon_ray.tracking.mlflow_server import ServerCheck, open_client

SERVER = "https://mlflow.example.com"
LOOPBACK = "http://127.0.0.1:5000"
PLAIN = "http://mlflow.lan:5000"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a home folder without logins; so is the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    others = ("NETRC", "MLFLOW_TRACKING_AWS_SIGV4", "PGPASSWORD", URI_VARIABLE, TRUST_VARIABLE)
    for name in (*LOGINS, *others):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("uri", "own", "trusted", "reason"),
    [
        (SERVER, SERVER, "", None),
        (f"{SERVER}:443/path", f"{SERVER.upper()}/other", "", None),
        (SERVER, "", "", "only a spec names that address"),
        (SERVER, f"{SERVER}:8443", "", "only a spec names"),
        (SERVER, SERVER.replace("https", "http"), "", "only a spec names"),
        (SERVER, f"{SERVER}.evil.com", "", "only a spec names"),
        (SERVER, "", f"{LOOPBACK}, {SERVER}", None),
        (LOOPBACK, LOOPBACK, "", None),
        (LOOPBACK, "http://127.0.0.1:5001", "", "only a spec names"),
        ("http://[::1]:5000", "http://[::1]:5000", "", None),
        (PLAIN, PLAIN, "", "plain HTTP sends it in clear text"),
        (PLAIN, PLAIN, PLAIN, None),
        ("sqlite:////r/mlflow.db", "", "", None),
        ("databricks://profile", "", "", None),
    ],
)
def test_a_login_goes_to_addresses_of_the_user(
    monkeypatch: pytest.MonkeyPatch, uri: str, own: str, trusted: str, reason: str | None
) -> None:
    monkeypatch.setenv(URI_VARIABLE, own)
    monkeypatch.setenv(TRUST_VARIABLE, trusted)
    check_login(uri)  # without a login any address is asked
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    if reason is None:
        return check_login(uri)
    with pytest.raises(UserError, match=reason) as refused:
        check_login(uri)
    message = str(refused.value)
    assert f"`--trust-tracking {address(uri)}`, or set {TRUST_VARIABLE}={address(uri)}" in message
    assert "s3cret" not in message
    for connect in (ServerCheck, open_client):
        with pytest.raises(UserError, match=reason):
            connect(uri)


@pytest.mark.parametrize(
    "uri",
    [
        *("https://TOKEN@host", "https://me:@host", "http://good\\@bad", "postgresql://u:p/w@h/d"),
        *(f"https://h/?a=b&{key}=x" for key in ("api_key", "access_key", "sas", "%74oken")),
        *(f"postgresql://me@h/d?{key}=x" for key in ("sslpassword", "passfile", "key")),
        "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dy",
    ],
)
def test_a_spec_holds_no_login(uri: str) -> None:
    with pytest.raises(ValidationError, match=r"tracking\.uri must hold no password and no token"):
        TrackingSpec(uri=uri)


@pytest.mark.parametrize(
    "uri",
    [
        *("https://host:8443/mlflow", "sqlite:////home/me@work/mlflow.db", "databricks://work"),
        *("postgresql+psycopg://me@h:5432/d?sslmode=require&sslkey=/etc/client.key",),
    ],
)
def test_a_spec_may_name_any_place(uri: str) -> None:
    assert TrackingSpec(uri=uri).uri == uri


@pytest.mark.parametrize("variable", [*LOGINS, "MLFLOW_TRACKING_AWS_SIGV4"])
def test_each_login_of_the_environment_counts(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(UserError, match=f"the login in {variable} is not sent"):
        check_login(LOOPBACK)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (".mlflow/credentials", "[mlflow]\nmlflow_tracking_password = s3cret\n"),
        (".netrc", "machine 127.0.0.1 login me password s3cret\n"),
        (".netrc", "default login me password s3cret\n"),
    ],
)
def test_each_file_with_a_login_counts(home: Path, file: str, text: str) -> None:
    (home / file).parent.mkdir(exist_ok=True)
    (home / file).write_text(text)
    (home / file).chmod(0o600)
    with pytest.raises(UserError, match=f"the login in ~/{file} is not sent"):
        check_login(LOOPBACK)


def test_a_login_of_another_server_does_not_count(home: Path) -> None:
    (home / ".netrc").write_text("machine other login me password s3cret\n")
    (home / ".netrc").chmod(0o600)
    check_login(LOOPBACK)


@pytest.mark.parametrize(
    ("uri", "is_refused"),
    [
        ("postgresql://me@db/mlflow", False),
        ("postgresql+psycopg://me@db:5432/other", False),
        ("postgresql://me@evil/mlflow", True),
        ("postgresql://me@db/mlflow?host=evil", True),
        ("http://db:5432", False),
    ],
)
def test_the_password_of_a_database(
    monkeypatch: pytest.MonkeyPatch, uri: str, is_refused: bool
) -> None:
    """A query of the URI can name another host than the URI itself."""
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    monkeypatch.setenv(URI_VARIABLE, "postgresql://me@db/mlflow")
    if not is_refused:
        return check_login(uri)
    with pytest.raises(UserError, match="the login in PGPASSWORD is not sent"):
        check_login(uri)


def test_a_received_folder_gets_no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody listens at the address: with the option the command fails because of that."""
    folder = tmp_path / "sweeps" / "theirs"
    (folder / "spool").mkdir(parents=True)
    (folder / "spec.yaml").write_text(
        f"{{name: t, tracking: {{uri: '{LOOPBACK.replace('5000', '9')}'}},"
        " data: {kind: synthetic}, search: {space: {train.lr: {grid: [0.1]}}, sampler: grid}}"
    )
    start = '{"kind": "start", "seq": 0, "time_ms": 1, "params": {}, "tags": {}}\n'
    (folder / "spool" / "parent.jsonl").write_text(start)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cret")
    monkeypatch.setenv(TRUST_VARIABLE, "")
    for command in ("audit", "track-sync"):
        words = [command, "theirs", "--root", str(tmp_path)]
        refused = CliRunner().invoke(program, words)
        assert refused.exit_code == 2, refused.output
        assert "is not sent to the tracking server http://127.0.0.1:9:" in refused.stderr
