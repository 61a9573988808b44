"""Where runs are tracked, whether somebody answers there, and how to look at them.

The only place that imports mlflow, which takes seconds: quietly, with our limits on waiting.
"""

import fcntl
import logging
import os
import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mtcon_ray.errors import SpecError, TrackingError
from mtcon_ray.places import mlflow_artifacts, mlflow_database

if TYPE_CHECKING:
    from mlflow import MlflowClient

SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SECRET_WORDS = r"(?i:password|passwd|pwd|token|secret|api[-_]?key|access[-_]?key|credentials?)"

SPOOL = (
    "unset tracking.uri and MLFLOW_TRACKING_URI, or set tracking.offline: true and send the runs "
    "later with `mtcon-ray track-sync`"
)


class RefusedError(Exception):
    """The server answers and will never take this."""


class LostError(Exception):
    """A run that was there is gone: everything has to be sent again."""


def tracking_uri(spec_uri: str | None, environ_uri: str | None, root: Path) -> str:
    """The absolute URI that every process uses: the spec's, MLFLOW_TRACKING_URI, or SQLite.

    Raises SpecError for a place that means another one in another working directory.
    """
    if not spec_uri and not environ_uri:
        return f"sqlite:///{mlflow_database(root.absolute())}"
    name = "tracking.uri" if spec_uri else "MLFLOW_TRACKING_URI"
    uri = str(spec_uri or environ_uri).rstrip("/")
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    way_out = f"; give sqlite:////absolute/path.db or http://host:port, or unset {name}"
    if scheme == "databricks":
        return uri
    if scheme not in SERVERS + DATABASES or "://" not in uri:
        rule = "be a database or a server, MLflow refuses files"
        raise SpecError(f"{name} must {rule}, got {masked(uri)!r}{way_out}")
    if scheme == "sqlite" and not re.match(r"sqlite(\+\w+)?:////[^/]", uri):
        raise SpecError(f"{name} must hold an absolute path, got {uri!r}{way_out}")
    return uri


def artifact_location(uri: str, root: Path) -> str | None:
    """Folder for the artifacts of a new experiment; None where the server has its own."""
    return None if is_server(uri) else mlflow_artifacts(root).as_uri()


def is_server(uri: str) -> bool:
    """Whether the URI names a tracking server rather than a database."""
    return uri.partition(":")[0].lower() in (*SERVERS, "databricks")


def masked(text: str) -> str:
    """The text with passwords and tokens replaced by ***: of URIs, options and assignments."""
    text = re.sub(r"(://[^/\s:@]*):[^\s'\"]*@", r"\1:***@", text)
    text = re.sub(r"(https?://)[^/\s:@]+@", r"\1***@", text)
    value = r"('[^']*'|\"[^\"]*\"|[^\s&'\"]+)"
    text = re.sub(rf"(--?[\w.-]*{SECRET_WORDS}[\w.-]*\s+)(?!-){value}", r"\1***", text)
    return re.sub(rf"({SECRET_WORDS}[\w.-]*(?:=|:\s))\s*{value}", r"\1***", text)


def quiet_environment() -> dict[str, str]:
    """Variables for every process that we start: no usage reports, no waiting for minutes."""
    return {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",  # MLflow reads only this spelling
        "RAY_USAGE_STATS_ENABLED": "0",
        # Repeating is ours to do: MLflow's own repeats would create a run twice.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "GIT_PYTHON_REFRESH": "quiet",
    }


def import_quietly() -> None:
    """Import mlflow once: no usage reports, no chatter below warnings."""
    for name, value in quiet_environment().items():
        os.environ.setdefault(name, value)
    import_module("mlflow")

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    # It prints a stack trace of every failed query; the error reaches us as an exception too.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def open_client(uri: str) -> "MlflowClient":
    """A client; on SQLite it creates database and schema once. Seconds, the first time."""
    import_quietly()
    from mlflow import MlflowClient

    if is_server(uri):
        return MlflowClient(uri)
    with _one_at_a_time(uri):
        if uri.startswith("sqlite"):
            _create(_database(uri))
        return MlflowClient(uri)


def check_server(uri: str, timeout: float = 10, *, way_out: str = SPOOL) -> None:
    """Ask the server one question. Raises TrackingError without an answer in time (seconds)."""
    errors: list[Exception] = []

    def ask() -> None:
        try:
            open_client(uri).search_experiments(max_results=1)
        except Exception as error:
            errors.append(error)

    if uri.startswith("sqlite"):
        ask()
        answered = True
    else:
        import_quietly()  # its seconds are not the server's
        thread = threading.Thread(target=ask, daemon=True, name="mtcon-tracking-check")
        thread.start()
        thread.join(timeout)
        answered = not thread.is_alive()
    if answered and not errors:
        return
    reason = _reason(errors[0]) if errors else f"no answer in {timeout:g} s"
    raise TrackingError(
        f"the tracking server at {masked(uri)} must answer, got: {reason}; start it, {way_out}"
    )


class ServerCheck:
    """`check_server` beside the preparations of a sweep; `answer` raises what it raised."""

    def __init__(self, uri: str) -> None:
        self._error: TrackingError | None = None
        self._thread = threading.Thread(target=self._run, args=(uri,), daemon=True)
        self._thread.start()

    def answer(self) -> None:
        """Wait for the server. Raises TrackingError without an answer."""
        self._thread.join()
        if self._error:
            raise self._error

    def _run(self, uri: str) -> None:
        try:
            check_server(uri)
        except TrackingError as error:
            self._error = error


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in ("psycopg", "psycopg2"):
        return f"no module {error.name}, which the extra has: pip install 'mtcon-ray[postgres]'"
    return first_line(error)


def ui_command(uri: str) -> str:
    """What opens the runs in a browser: a command line, or the server's own address."""
    if is_server(uri):
        return masked(uri)
    store = shlex.quote(uri) if masked(uri) == uri else '"$MLFLOW_TRACKING_URI"'
    return f"mlflow ui --backend-store-uri {store} --host 127.0.0.1 --port 5000"


def first_line(error: Exception) -> str:
    """An error in one line of at most 300 characters, without secrets."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno):
        cause = cause.__cause__ or cause.__context__
    text = masked(str(cause or error)).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def _database(uri: str) -> Path:
    return Path(urlsplit(uri).path[1:])


def _create(database: Path) -> None:
    """A new database, made under another name: MLflow cannot go on with half a schema."""
    from mlflow import MlflowClient

    if not database.exists():
        building = database.with_name(f"{database.name}.building")
        for left in database.parent.glob(f"{building.name}*"):
            left.unlink()  # by a process that was killed, with its journal
        building.touch(mode=0o600)  # SQLite gives its journals the same mode
        MlflowClient(f"sqlite:///{building}")
        building.rename(database)


@contextmanager
def _one_at_a_time(uri: str) -> Iterator[None]:
    """Two sweeps that start at once must not both migrate one SQLite file."""
    if not uri.startswith("sqlite"):
        yield
        return
    database = _database(uri)
    database.parent.mkdir(parents=True, exist_ok=True)
    with database.with_name(f"{database.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
