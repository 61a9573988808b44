"""Consent to send the user's login, and files of runs, to an address.

MLflow's client and the drivers of databases send logins of the user to any address. A spec, the
recorded spec of somebody else's folder, or a row of a database can name the address of its author.
So a login goes only to addresses named by the user in MLFLOW_TRACKING_URI or `--trust-tracking`.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from netrc import NetrcParseError, netrc
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mtcon_ray.base.paths import MLFLOW_ARTIFACTS
from mtcon_ray.base.root_files import check_no_links, split_at_root
from mtcon_ray.errors import UserError

URI_VARIABLE = "MLFLOW_TRACKING_URI"
TRUST_VARIABLE = "MTCON_RAY_TRUST_TRACKING"
TRUST_OPTION = "--trust-tracking"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PORTS = {"http": 80, "https": 443}  # of servers, by scheme
# Variables with which MLflow's client (3.17.2) sends a login to a server.
LOGINS = [f"MLFLOW_TRACKING_{name}" for name in ("TOKEN", "PASSWORD", "AUTH", "CLIENT_CERT_PATH")]
SIGNS = "MLFLOW_TRACKING_AWS_SIGV4"
SECRET_WORDS = (
    r"(?i:password|passwd|pwd|token|secret|api[-_]?key|access[-_]?key|credentials?)"
    r"|(?<![A-Za-z])KEY(?![\w.-])"
)


def is_server(uri: str) -> bool:
    """Returns True if the URI names a tracking server rather than a database."""
    return scheme_of(uri) in (*PORTS, "databricks")


def scheme_of(uri: str) -> str:
    """Returns the scheme of a URI without a driver: postgresql of postgresql+psycopg://..."""
    return uri.partition(":")[0].partition("+")[0].lower()


def trust(addresses: Iterable[str]) -> None:
    """Adds addresses to which this process and its children may send a login."""
    os.environ[TRUST_VARIABLE] = " ".join([os.environ.get(TRUST_VARIABLE, ""), *addresses]).strip()


def address(uri: str, name: str = "tracking.uri") -> str:
    """Returns scheme, host and port of a server, or the whole URI of anything else.

    A driver of a database reads its host and its options from all parts of a URI, and not as
    `urlsplit` does. Raises UserError with the `name` of the URI if no client could read it.

    >>> address("HTTPS://me@Host/path"), address("postgresql+psycopg://h/d?host=other")
    ('https://host:443', 'postgresql+psycopg://h/d?host=other')
    """
    if (scheme := scheme_of(uri)) not in PORTS:
        return uri.rstrip("/")
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port or PORTS[scheme]
        # MLflow's client ends the host at a backslash, `urlsplit` does not.
        if not host or re.search(r"[\\\s]", uri):
            raise ValueError
    except ValueError:
        got = uri.rpartition("@")[2].partition("?")[0]  # without a login
        raise UserError(f"{name} must be http(s)://host:port, got {got!r}") from None
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _own() -> str:
    own = os.environ.get(URI_VARIABLE, "")
    return own and address(own, URI_VARIABLE)


def _trusted() -> set[str]:
    given = os.environ.get(TRUST_VARIABLE, "").split()
    return {address(each, f"{TRUST_OPTION} or {TRUST_VARIABLE}") for each in given}


def check_login(uri: str, name: str = "tracking.uri") -> None:
    """Raises UserError if a login could go to an address without the user's consent.

    A login goes over plain HTTP to another machine only with `--trust-tracking`. Every database but
    SQLite needs consent: its driver finds logins in more places than can be listed.
    """
    scheme = scheme_of(uri)
    if scheme in ("sqlite", "databricks"):  # a profile of Databricks names its own host
        return
    is_own = _own() == (where := address(uri, name))
    what = "a login that its driver may find"
    if scheme in PORTS:
        if (login := next(_logins(uri), None)) is None:
            return
        what = f"the login in {login}"
    is_plain = scheme == "http" and urlsplit(uri).hostname not in LOOPBACK
    if where in _trusted() or (is_own and not is_plain):
        return
    why = f"neither {URI_VARIABLE} nor {TRUST_OPTION} names that address"
    if is_own:
        why = "plain HTTP sends it in clear text"
    text = f"{what} is not sent to the tracking server {masked(where)}"
    raise UserError(f"{text}: {why}. {_consent(where)}")


def check_place(location: str, uri: str, name: str = "") -> None:
    """Raises UserError or SweepError unless a file may be written to a run's artifact URI.

    `name` is the path of the file there. `uri` is the tracking server, which may be a stranger's
    and may name any server and any folder of the user.
    """
    parts = urlsplit(location)
    if parts.scheme == "mlflow-artifacts":  # the tracking server itself, or another host
        if parts.netloc:
            check_login(f"{scheme_of(uri)}://{parts.netloc}", "the artifact URI")
        return
    if parts.scheme in PORTS:
        check_login(location, "the artifact URI")
    folder = Path(unquote(parts.path))
    # Only in this spelling, because MLflow reads other spellings differently.
    if folder.is_absolute() and location in (str(folder), folder.as_uri()):
        root, below = split_at_root(folder)
        if root / below[0] == root / MLFLOW_ARTIFACTS:
            return check_no_links(folder / name)
    named = {_own(), *_trusted()} - {""}
    if scheme_of(uri) != "databricks" and not named & {address(uri), address(location)}:
        raise UserError(
            f"the files of a run are not sent to {masked(location)}: only the tracking server "
            f"{masked(address(uri))} names that place. {_consent(address(uri))}"
        )


def _consent(where: str) -> str:
    if masked(where) != where:  # other users can see command lines
        return f"If you trust it, set {URI_VARIABLE} to it"
    quoted = shlex.quote(where)
    option, variable = f"{TRUST_OPTION} {quoted}", f"{TRUST_VARIABLE}={quoted}"
    return f"If you trust it, repeat the command with `{option}`, or set {variable}"


def _logins(uri: str) -> Iterator[str]:
    """Yields the places of the user's logins that MLflow's client would send to a server."""
    if os.environ.get(SIGNS, "").lower() in ("true", "1"):
        yield SIGNS
    parts = urlsplit(uri)
    if parts.username:
        yield URI_VARIABLE  # a spec with a login is refused
    with suppress(OSError, UnicodeDecodeError, RuntimeError):
        if "mlflow_tracking_password" in Path("~/.mlflow/credentials").expanduser().read_text():
            yield "~/.mlflow/credentials"
    for name in filter(None, (os.environ.get("NETRC"), "~/.netrc", "~/_netrc")):
        # The library requests also ignores unreadable files.
        with suppress(OSError, NetrcParseError, UnicodeDecodeError, RuntimeError):
            if netrc(Path(name).expanduser()).authenticators(parts.hostname or ""):
                yield name
    yield from (name for name in LOGINS if os.environ.get(name))


def masked(text: str) -> str:
    """Returns the text with passwords and tokens in URIs, options and assignments shown as ***.

    Takes time in proportion to the length of the text, which may come from a stranger's file. For
    this, patterns begin at the first character of a word and never backtrack.
    """
    text = re.sub(r"://[^\s'\"]++", _masked_userinfo, text)
    text = re.sub(r"(https?://)[^/\s:@]++@", r"\1***@", text)
    text = re.sub(r"(['\"](?:Bearer|Basic) )[^'\"]+|(\bBearer )\S+", r"\1\2***", text)
    value = r"('[^']*'|\"[^\"]*\"|[^\s&'\"]++)"
    key = r"(?i:authorization)['\"]?\s?[:=]\s?['\"]?(?:\w++ )?"
    text = re.sub(rf"({key}){value}", r"\1***", text)
    word = rf"(?=[\w.-]*?(?:{SECRET_WORDS}))[\w.-]++"
    text = re.sub(rf"(?<![\w.-])((?=-){word}\s++)(?!-){value}", r"\1***", text)
    equals = r"(?:['\"]?\s*+=|['\"]?:\s|['\"]\s*+:)\s*+"
    return re.sub(rf"(?<![\w.-])({word}{equals}){value}", r"\1***", text)


def _masked_userinfo(found: re.Match[str]) -> str:
    """Masks the text between the first user name's colon and the last @ of a URI."""
    before, _, host = found[0].rpartition("@")
    user = re.search(r"://[^/\s:@]*:", before)
    return f"{before[: user.end()]}***@{host}" if user else found[0]
