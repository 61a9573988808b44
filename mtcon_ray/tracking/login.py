"""Consent to send the user's login for MLflow to an address.

MLflow's client sends the login of the environment to any address. A spec, or the recorded spec of a
folder that somebody sent, can name the address of its author. So a login goes only to addresses
that the user named: MLFLOW_TRACKING_URI, and those of `--trust-tracking`.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from netrc import NetrcParseError, netrc
from pathlib import Path
from urllib.parse import urlsplit

from mtcon_ray.errors import UserError

URI_VARIABLE = "MLFLOW_TRACKING_URI"
TRUST_VARIABLE = "MTCON_RAY_TRUST_TRACKING"
TRUST_OPTION = "--trust-tracking"
SERVERS = ("http", "https")
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306}
# Variables of MLflow's client (3.17.2) that make it send a login to a server.
LOGINS = tuple(
    f"MLFLOW_TRACKING_{name}" for name in ("TOKEN", "PASSWORD", "AUTH", "CLIENT_CERT_PATH")
)
SIGNS = "MLFLOW_TRACKING_AWS_SIGV4"


def is_server(uri: str) -> bool:
    """Returns True if the URI names a tracking server rather than a database."""
    return uri.partition(":")[0].lower() in (*SERVERS, "databricks")


def trust(addresses: Iterable[str]) -> None:
    """Adds addresses to which this process and its children may send a login."""
    known = os.environ.get(TRUST_VARIABLE, "")
    os.environ[TRUST_VARIABLE] = " ".join([known, *addresses]).strip()


def address(uri: str) -> str:
    """Returns scheme, host and port of a server, of a database also the query, which may name both.

    >>> address("HTTPS://me@Host/path"), address("postgresql+psycopg://h/d?host=other")
    ('https://host:443', 'postgresql://h:5432?host=other')
    """
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    query = f"?{parts.query}" if parts.query and scheme not in SERVERS else ""
    return f"{scheme}://{host}:{parts.port or PORTS.get(scheme, '')}{query}"


def check_login(uri: str) -> None:
    """Raises UserError if a login would go to an address without the user's consent.

    A login goes over plain HTTP to another machine only with `--trust-tracking`.
    """
    login = next(_logins(uri), None)
    if login is None:
        return
    where, own = address(uri), os.environ.get(URI_VARIABLE, "")
    trusted = re.split(r"[,\s]+", os.environ.get(TRUST_VARIABLE, "").strip())
    if where in {address(each) for each in trusted if each}:
        return
    is_own = bool(own) and where == address(own)
    if is_own and not _in_clear_text(uri):
        return
    why = "plain HTTP sends it in clear text" if is_own else "only a spec names that address"
    raise UserError(
        f"the login in {login} is not sent to the tracking server {where}: {why}. If you trust it, "
        f"repeat the command with `{TRUST_OPTION} {where}`, or set {TRUST_VARIABLE}={where}"
    )


def _logins(uri: str) -> Iterator[str]:
    """Yields where the user keeps logins that a client would send to the URI's address."""
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]
    names: tuple[str, ...] = ()
    if scheme in SERVERS:
        names = LOGINS
        if os.environ.get(SIGNS, "").lower() in ("true", "1"):
            yield SIGNS
        if parts.username:
            yield URI_VARIABLE  # a spec with a login is refused
        yield from _login_files(parts.hostname or "")
    elif scheme == "postgresql":
        names = ("PGPASSWORD", "PGPASSFILE", "PGSSLKEY", "PGSERVICEFILE")
        if Path("~/.pgpass").expanduser().exists():
            yield "~/.pgpass"
    elif scheme == "mysql":
        names = ("MYSQL_PWD",)
    yield from (name for name in names if os.environ.get(name))


def _login_files(host: str) -> Iterator[str]:
    """Yields files with a login for a server: MLflow's own, and one of the library requests."""
    with suppress(OSError, UnicodeDecodeError, RuntimeError):
        if "mlflow_tracking_password" in Path("~/.mlflow/credentials").expanduser().read_text():
            yield "~/.mlflow/credentials"
    for name in filter(None, (os.environ.get("NETRC"), "~/.netrc", "~/_netrc")):
        # requests ignores files that it cannot read, too.
        with suppress(OSError, NetrcParseError, UnicodeDecodeError, RuntimeError):
            if netrc(Path(name).expanduser()).authenticators(host):
                yield name


def _in_clear_text(uri: str) -> bool:
    """Returns True for plain HTTP to another machine."""
    parts = urlsplit(uri)
    host = parts.hostname or ""
    with suppress(ValueError):
        return parts.scheme == "http" and not ip_address(host).is_loopback
    return parts.scheme == "http" and host != "localhost"
