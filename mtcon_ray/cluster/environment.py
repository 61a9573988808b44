"""Environment variables, working directory and private folder of a process that uses Ray.

Files of local Rays, closed to all other users:
<RAY_TMPDIR, else TMPDIR, else /tmp>/mtcon-ray-<user id>/
    ray/     sessions: sockets, logs and the processes' working directories
    token    the token of these Rays, unless the user has one
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcon_ray.base.paths import choose_root
from mtcon_ray.base.registry import expanded
from mtcon_ray.errors import MtconError, UserError
from mtcon_ray.spec.resources import StorageSpec

ROOT_VARIABLE = "MTCON_RAY_ROOT"
# Variables with paths for libraries, read while a sweep runs.
PATH_VARIABLES = {
    "RAY_TMPDIR", "TMPDIR", "MTCON_RAY_CLUSTER_FILE",
    "RAY_AUTH_TOKEN_PATH", "RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY",
    "MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_CLIENT_CERT_PATH",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
}  # fmt: skip

TOKEN_HINT = (
    "set RAY_AUTH_MODE=token and put the head's token into ~/.ray/auth_token or RAY_AUTH_TOKEN; "
    "cluster/README.md says how"
)

_left: Path | None = None  # the working directory before `away`


@contextmanager
def restored_environment() -> Iterator[None]:
    """Restores the former values of environment variables after changes by libraries."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def cluster_address() -> str | None:
    """Returns the address of this process's cluster (RAY_ADDRESS), None for a local Ray."""
    given = os.environ.get("RAY_ADDRESS")
    return None if given in ("", "local") else given


def working_directory() -> Path:
    """Returns this process's working directory. Raises UserError if it was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UserError(
            "the working directory was removed or moved after this process entered it "
            f"({error.strerror}); change to another directory"
        ) from None


def root_of(given: str | Path | None, storage: StorageSpec | None = None) -> Path:
    """Returns the root: the option's, else the spec's, else the environment's, else the default."""
    of_spec, local = (storage.root, storage.local) if storage else (None, None)
    return choose_root(str(given or of_spec or os.environ.get(ROOT_VARIABLE, "")), local)


def private_folder() -> Path:
    """Returns the folder of all files of local Rays, after making it with mode 0700 if missing.

    Ray itself makes folders with write access for everybody. Raises MtconError if the folder cannot
    be made, or if it is a link or another user's.
    """
    base = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    folder = working_folder() / base / f"mtcon-ray-{os.getuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "a link or a folder of another user", str(folder))
        folder.chmod(0o700)
    except OSError as error:
        raise not_writable(error) from None
    return folder


def has_token() -> bool:
    """Returns True if the user has a token where Ray looks for it."""
    named = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    return bool(named) or (Path.home() / ".ray/auth_token").exists()


def name_token() -> None:
    """Names a token of these Rays in the environment, unless the user has a token or wants none.

    Ray would write a token to ~/.ray/auth_token. After this `ray start --head` requires a token,
    which `ray job submit` does not send. Raises MtconError if the file cannot be written.
    """
    if has_token() or os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    path = private_folder() / "token"
    made = path.with_name(f"token-{os.getpid()}")
    try:
        if not path.exists():
            made.touch(mode=0o600)
            made.write_text(secrets.token_hex(32), encoding="ascii")
            # In one step, because another Ray that starts at the same time reads it too.
            with suppress(FileExistsError):
                path.hardlink_to(made)
            made.unlink()
    except OSError as error:
        raise not_writable(error) from None
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def not_writable(error: OSError) -> MtconError:
    """Returns the message about a file that Ray cannot write, or a path too long for a socket."""
    return MtconError(
        f"Ray cannot use the folder of its sessions: {error}; set RAY_TMPDIR to a short path that "
        "can be written (without it, Ray takes TMPDIR, then /tmp)"
    )


def sessions_folder() -> Path:
    """Returns the folder in which a local Ray makes a folder for each session."""
    return private_folder() / "ray"


def _empty_folder() -> Path:
    """Returns an empty folder, below the user's home if possible.

    On another node nobody else can make the same folder there, but anybody can make one in /tmp.
    """
    try:
        folder = expanded("~/.cache/mtcon-ray/empty")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, UserError):  # no home, or not writable
        folder = private_folder() / "empty"
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def away() -> Iterator[None]:
    """Changes to an empty working directory while this process uses Ray.

    Ray starts its processes there, and adds this folder to the folders in which processes on all
    nodes look for modules. Ray may also replace the directory of a job while the job's driver runs
    in it. Relative paths in PATH_VARIABLES become absolute. Afterwards all environment variables
    are as before.
    """
    global _left
    before, here, user_s = _left, working_directory(), working_folder()
    empty = _empty_folder()
    with restored_environment():
        for name in PATH_VARIABLES & os.environ.keys():
            path = os.environ[name]
            if path and not path.startswith("~"):
                os.environ[name] = str(user_s / path)
        _left = user_s
        os.chdir(empty)
        try:
            yield
        finally:
            _left = before
            with suppress(OSError):  # it was removed meanwhile, or this user may not enter it
                os.chdir(here)


def working_folder() -> Path:
    """Returns the user's working directory, also in the context of `away`."""
    return _left or working_directory()
