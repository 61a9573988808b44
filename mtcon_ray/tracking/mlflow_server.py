"""The connection to MLflow: tracking URI, check of the server, client, and UI command.

`import_quietly` imports mlflow (seconds) without usage reports and with our own timeouts.
Modules that import mlflow at the top must be imported after it.
"""

import fcntl
import logging
import os
import re
import shlex
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mtcon_ray.errors import SpecError, TrackingError
from mtcon_ray.files import below, check_no_links, make_folder, move, remove, touch
from mtcon_ray.paths import mlflow_artifacts, mlflow_database

if TYPE_CHECKING:
    from mlflow import MlflowClient

URI_VARIABLE = "MLFLOW_TRACKING_URI"
SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
SECRET_WORDS = r"(?i:password|passwd|pwd|token|secret|api[-_]?key|access[-_]?key|credentials?)"

SPOOL = (
    "unset tracking.uri and MLFLOW_TRACKING_URI, or set tracking.offline: true and send the runs "
    "later with `mtcon-ray track-sync`"
)


class RefusedError(Exception):
    """Error for an event that the server will never accept, although it answers."""


def tracking_uri(spec_uri: str | None, root: Path) -> str:
    """Returns the absolute URI for all processes: the spec's, MLFLOW_TRACKING_URI, or SQLite.

    Raises SpecError for a relative path, which depends on the working directory, and for a URI
    that is neither a database nor a server.
    """
    environ_uri = os.environ.get(URI_VARIABLE)
    if not spec_uri and not environ_uri:
        return f"sqlite:///{mlflow_database(root.absolute())}"
    name = "tracking.uri" if spec_uri else URI_VARIABLE
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
    """Returns the artifact URI of a new experiment; None if a server chooses its own."""
    if is_server(uri):
        return None
    make_folder(mlflow_artifacts(root))  # MLflow would make it readable by others
    return mlflow_artifacts(root).as_uri()


def is_server(uri: str) -> bool:
    """Returns True if the URI names a tracking server rather than a database."""
    return uri.partition(":")[0].lower() in (*SERVERS, "databricks")


def masked(text: str) -> str:
    """Returns the text with passwords and tokens in URIs, options and assignments shown as ***."""
    text = re.sub(r"(://[^/\s:@]*):[^\s'\"]*@", r"\1:***@", text)
    text = re.sub(r"(https?://)[^/\s:@]+@", r"\1***@", text)
    text = re.sub(r"(['\"](?:Bearer|Basic) )[^'\"]+|(\bBearer )\S+", r"\1\2***", text)
    value = r"('[^']*'|\"[^\"]*\"|[^\s&'\"]+)"
    text = re.sub(rf"(--?[\w.-]*{SECRET_WORDS}[\w.-]*\s+)(?!-){value}", r"\1***", text)
    return re.sub(rf"({SECRET_WORDS}[\w.-]*(?:=|:\s))\s*{value}", r"\1***", text)


def quiet_environment() -> dict[str, str]:
    """Returns environment variables for every child process: no usage reports, short timeouts."""
    return {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",  # MLflow reads only this spelling
        "RAY_USAGE_STATS_ENABLED": "0",
        # The sender retries: a retry inside MLflow's client could create a run twice.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "GIT_PYTHON_REFRESH": "quiet",
    }


def import_quietly() -> None:
    """Imports mlflow without usage reports and without log messages below warnings."""
    for name, value in quiet_environment().items():
        os.environ.setdefault(name, value)
    import_module("mlflow")

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    # This logger prints a stack trace of every failed query; the client raises the error anyway.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def open_client(uri: str) -> "MlflowClient":
    """Returns a client. Creates the database and its schema on SQLite, which takes seconds once."""
    import_quietly()
    from mlflow import MlflowClient

    if not uri.startswith("sqlite"):
        return MlflowClient(uri)
    database = Path(urlsplit(uri).path[1:])
    check_no_links(database)
    make_folder(database.parent)
    # Two sweeps that start together must not both make or migrate the schema.
    with open(database.with_name(f"{database.name}.lock"), "w", opener=below) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not database.exists():
            # Under another name, because MLflow cannot continue with the partial schema that a kill
            # would leave.
            building = database.with_name(f"{database.name}.building")
            for left in database.parent.glob(f"{building.name}*"):
                remove(left)  # left by a process that was killed, with its journal
            touch(building)  # SQLite gives its journals the same mode
            MlflowClient(f"sqlite:///{building}")
            move(building, database)
        return MlflowClient(uri)


def check_server(uri: str, timeout: float = 10, *, way_out: str = SPOOL) -> None:
    """Checks that the server answers a request within `timeout` seconds; SQLite has no timeout.

    Raises TrackingError otherwise.
    """
    ServerCheck(uri).answer(timeout, way_out)


class ServerCheck:
    """A request to the tracking server, in a thread so that a sweep is prepared meanwhile."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True, name="mtcon-tracking-check")
        self._thread.start()

    def answer(self, timeout: float = 10, way_out: str = SPOOL) -> None:
        """Waits for the answer as `check_server` does."""
        import_quietly()  # here, so that the seconds of the import do not count as the server's
        self._thread.join(None if self._uri.startswith("sqlite") else timeout)
        if self._thread.is_alive():
            reason = f"no answer in {timeout:g} s"
        elif self._error is not None:
            reason = _reason(self._error)
        else:
            return
        raise TrackingError(
            f"the tracking server at {masked(self._uri)} must answer, got: {reason}; start it, "
            f"{way_out}"
        )

    def _ask(self) -> None:
        try:
            open_client(self._uri).search_experiments(max_results=1)
        except Exception as error:
            self._error = error


def _reason(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in ("psycopg", "psycopg2"):
        return f"no module {error.name}, which the extra has: pip install 'mtcon-ray[postgres]'"
    return first_line(error)


def ui_command(uri: str) -> str:
    """Returns the command line that opens MLflow's UI, or the URL of the server."""
    if is_server(uri):
        return masked(uri)
    store = shlex.quote(uri) if masked(uri) == uri else '"$MLFLOW_TRACKING_URI"'
    return f"mlflow ui --backend-store-uri {store} --host 127.0.0.1 --port 5000"


def first_line(error: Exception) -> str:
    """Returns an error in one line of at most 300 characters, without secrets.

    Prefers the operating system's error behind it, such as "Connection refused", which is shorter
    than the messages that the HTTP library wraps around it.
    """
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno):
        cause = cause.__cause__ or cause.__context__
    text = masked(str(cause or error)).strip() or type(error).__name__
    return text.splitlines()[0][:300]
