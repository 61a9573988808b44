"""Folders of a local Ray, closed to all other users.

<RAY_TMPDIR, else on Linux TMPDIR, else /tmp>/mtcon-ray-<user id>/
    ray/     sessions: sockets, logs and the processes' working directories
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcon_ray.base.registry import expanded
from mtcon_ray.cluster.environment import restored_environment, working_directory
from mtcon_ray.errors import MtconError, UserError

# Variables with paths for libraries, read while a sweep runs.
PATH_VARIABLES = {
    "RAY_TMPDIR", "TMPDIR", "MTCON_RAY_CLUSTER_FILE",
    "RAY_AUTH_TOKEN_PATH", "RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY",
    "MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_CLIENT_CERT_PATH",
    "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
}  # fmt: skip

TOKEN_VARIABLES = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}

# One for all Rays of this process, because Ray's client keeps the first that it reads.
_TOKEN = secrets.token_hex(32)

_left: Path | None = None  # the working directory before `away`


def private_folder() -> Path:
    """Returns the folder of all files of local Rays, after making it with mode 0700 if missing.

    Ray itself makes folders with write access for everybody. Raises MtconError if the folder cannot
    be made, or if it is a link or another user's.
    """
    base = os.environ.get("RAY_TMPDIR")
    if not base and sys.platform == "linux":  # macOS has a TMPDIR too long for a socket's path
        base = os.environ.get("TMPDIR")
    folder = working_folder() / (base or "/tmp") / f"mtcon-ray-{os.getuid()}"
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
    return bool(TOKEN_VARIABLES & os.environ.keys()) or (Path.home() / ".ray/auth_token").exists()


def give_token() -> None:
    """Gives a local Ray a token in the environment, unless the user has a token or wants none.

    Ray would write a token to ~/.ray/auth_token. After this `ray start --head` requires a token,
    which `ray job submit` does not send.
    """
    if not has_token() and os.environ.get("RAY_AUTH_MODE", "token").lower() == "token":
        os.environ["RAY_AUTH_TOKEN"] = _TOKEN


def not_writable(error: OSError) -> MtconError:
    """Returns the message about a file that Ray cannot write, or a path too long for a socket."""
    return MtconError(
        f"Ray cannot use the folder of its sessions: {error}; set RAY_TMPDIR to a short path that "
        "can be written (without it, Ray takes TMPDIR on Linux, then /tmp)"
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
