"""The connection to MLflow: tracking URI, check of the server, client, and UI command.

`import_quietly` imports mlflow (seconds) without usage reports and with our own timeouts.
Modules with a top-level import of mlflow must be imported after this call.
"""

import fcntl
import logging
import os
import re
import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from mtcon_ray.base.paths import MLFLOW_ARTIFACTS, MLFLOW_DATABASE, shown
from mtcon_ray.base.root_files import below, check_no_links, make_folder, move, remove, touch
from mtcon_ray.errors import MtconError, SpecError, TrackingError, UserError
from mtcon_ray.tracking import login

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

# The name of a sweep's own run, and the tag with the identity of its event log.
PARENT = "parent"
IDENTITY = "mtcon.id"
ANSWER_SECONDS = 10.0
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")

OFFLINE = (
    "unset tracking.uri and MLFLOW_TRACKING_URI, or set tracking.offline: true and send the runs "
    "later with `mtcon-ray audit NAME --repair`"
)


def tracking_uri(spec_uri: str | None, root: Path) -> str:
    """Returns the absolute URI for all processes: the spec's, MLFLOW_TRACKING_URI, or SQLite.

    Raises SpecError for a relative path, which depends on the working directory, and for every URI
    except databases and servers.
    """
    name = "tracking.uri" if spec_uri else login.URI_VARIABLE
    if not (given := spec_uri or os.environ.get(name)):
        return own_database(root)
    uri = given.rstrip("/")
    scheme = login.scheme_of(uri)
    way_out = f"; give sqlite:////absolute/path.db or http://host:port, or unset {name}"
    if scheme == "databricks":
        return uri
    if scheme not in (*login.PORTS, *DATABASES) or "://" not in uri:
        rule = "be a database or a server, MLflow refuses files"
        raise SpecError(f"{name} must {rule}, got {login.masked(uri)!r}{way_out}")
    if scheme == "sqlite" and not re.match(r"sqlite(\+\w+)?:////[^/]", uri):
        raise SpecError(f"{name} must hold an absolute path, got {uri!r}{way_out}")
    return uri


def own_database(root: Path) -> str:
    """Returns the URI of the SQLite file below a root."""
    path = str(root.absolute() / MLFLOW_DATABASE)
    # Only these characters have a meaning in a URI. All others stay, because the URI of a root
    # must not change: a sweep's saved position in its event log belongs to the URI.
    quoted = re.sub("[%?#]", lambda found: quote(found[0]), path)
    # With `sqlite:` MLflow (3.17.2) makes a folder of the quoted name.
    return f"sqlite:///{path}" if quoted == path else f"sqlite+pysqlite:///{quoted}"


def artifact_location(uri: str, root: Path) -> str | None:
    """Returns the artifact URI of a new experiment, or None if a server chooses its own."""
    if login.is_server(uri):
        return None
    # Made here: MLflow's folder would be readable by others. If this fails, uploads wait.
    with suppress(OSError):
        make_folder(root / MLFLOW_ARTIFACTS)
    return (root / MLFLOW_ARTIFACTS).as_uri()


def check_experiment(experiment: "Experiment", uri: str, root: Path) -> None:
    """Raises UserError if an experiment was deleted, or keeps its files at a wrong place.

    A wrong place is below another root, or refused by `check_place`.
    """
    name, way_out = experiment.name, "choose another tracking.experiment"
    if experiment.lifecycle_stage != "active":
        command = restore_command(uri, "experiments", "restore", "-x", experiment.experiment_id)
        raise UserError(
            f"experiment {name!r} is deleted in MLflow; restore it with {command}, or {way_out}"
        )
    parts, own = urlsplit(experiment.artifact_location), root / MLFLOW_ARTIFACTS
    folder = Path(unquote(parts.path))
    is_of_a_root = parts.scheme in ("", "file") and folder.name == own.name
    if uri == own_database(root) and is_of_a_root and folder.resolve() != own.resolve():
        raise UserError(
            f"experiment {name!r} keeps its files in {folder}, not below the root {root}, which "
            f"was moved, renamed or copied; move it back, make {folder.parent} a symbolic link "
            f"to it, or {way_out}"
        )
    login.check_place(experiment.artifact_location, uri)


def restore_command(uri: str, *arguments: str) -> str:
    """Returns a command line of MLflow in backticks, with its URI unless this has a secret."""
    place = f"{login.URI_VARIABLE}={shlex.quote(uri)} " if login.masked(uri) == uri else ""
    return f"`{place}mlflow {' '.join(arguments)}`"


def sync_command(folder: Path) -> str:
    """Returns the command line, in backticks, to send the unsent events of a folder to MLflow."""
    root = shlex.quote(shown(folder.parents[1]))
    return f"`mtcon-ray audit {folder.name} --repair --root {root}`"


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
    # This logger prints a stack trace of every failed query, but the client raises it anyway.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def open_client(uri: str) -> "MlflowClient":
    """Returns a client. Creates the database and its schema on SQLite, which takes seconds once.

    Raises UserError as `check_login` does.
    """
    login.check_login(uri)
    import_quietly()
    from mlflow import MlflowClient
    from sqlalchemy.engine import make_url

    if not uri.startswith("sqlite"):
        return MlflowClient(uri)
    database = Path(str(make_url(uri).database))
    # The user has chosen the folder, perhaps by a link with the name of a root's folder.
    database = database.parent.resolve() / database.name
    check_no_links(database)
    make_folder(database.parent)
    # Two sweeps starting together must not both make or migrate the schema.
    # "a", because it may be another program's file: a database named `uv` would take `uv.lock`.
    with open(database.with_name(f"{database.name}.lock"), "a", opener=below) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not database.exists():
            # Under another name, because a kill would leave a partial schema and MLflow cannot
            # continue with it.
            building = database.with_name(f"{database.name}.building")
            for end in ("", "-journal", "-wal", "-shm"):  # left by a process that was killed
                remove(database.with_name(f"{building.name}{end}"))
            touch(building)  # SQLite gives its journals the same mode
            MlflowClient(re.sub(r"(?=\?)|$", building.suffix, uri, count=1))
            move(building, database)
        return MlflowClient(uri)


@contextmanager
def tracking_errors(what: str) -> Iterator[None]:
    """Turns an error of MLflow inside into a TrackingError that begins with `what`."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise TrackingError(f"{what}: {first_line(error)}") from error


def check_server(
    uri: str, *, way_out: str = OFFLINE, experiment: str = "", root: Path = Path()
) -> "MlflowClient":
    """Returns a client of a server that has answered a request.

    Raises UserError as `check_login` does, and as `check_experiment` does for the `experiment`.
    Raises TrackingError without an answer within ANSWER_SECONDS. SQLite has no timeout.
    """
    login.check_login(uri)
    import_quietly()  # else the seconds of the import would count as the server's
    answer: Future[MlflowClient] = Future()

    def ask() -> None:
        try:
            client = open_client(uri)
            client.search_experiments(max_results=1)
            if named := experiment and client.get_experiment_by_name(experiment):
                check_experiment(named, uri, root)
            answer.set_result(client)
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True, name="mtcon-tracking-check").start()
    try:
        return answer.result(None if uri.startswith("sqlite") else ANSWER_SECONDS)
    except MtconError:
        raise
    except TimeoutError:
        reason = f"no answer in {ANSWER_SECONDS:g} s"
    except Exception as error:
        reason = first_line(error)
    problem, cure = "does not answer", "start it"
    if re.search(r"error code 40[13]\b", reason):
        problem, cure = "refuses the login", "set MLFLOW_TRACKING_USERNAME and _PASSWORD"
    raise TrackingError(
        f"the tracking server at {login.masked(uri)} {problem}: {reason}; {cure}, {way_out}"
    )


def ui_command(uri: str) -> str:
    """Returns the command line to open MLflow's UI, or the URL of the server."""
    if login.is_server(uri):
        return login.masked(uri)
    store = shlex.quote(uri) if login.masked(uri) == uri else '"$MLFLOW_TRACKING_URI"'
    return f"mlflow ui --backend-store-uri {store} --host 127.0.0.1 --port 5000"


def first_line(error: Exception) -> str:
    """Returns an error as a single line of at most 300 characters, without secrets.

    Prefers the operating system's error behind it, such as "Connection refused". It is shorter than
    the HTTP library's messages around it.
    """
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno):
        cause = cause.__cause__ or cause.__context__
    text = login.masked(str(cause or error)).strip() or type(error).__name__
    return text.splitlines()[0][:300]
