"""A node's local copy of the decoded images, for a root on a slower (network) file system.

<node store>/<key>/        same content as <store>/<key>/ under the root
<node store>/<key>.lock    held while <key>.building is filled and renamed to <key>
"""

import logging
import os
import shutil
import stat
from pathlib import Path

from mtcon_ray.data.disk import build_folder
from mtcon_ray.errors import ResourceError

log = logging.getLogger(__name__)


def local_copy(folder: Path, node_store: Path) -> Path:
    """Returns the copy of `folder` under `node_store`; the node's first process creates it.

    Returns `folder` itself, with a logged warning, if the copy does not fit on the disk, cannot
    be written, or lies where other users may write. A node with a full disk then reads from the
    root instead of failing its trials.
    """
    try:
        node_store.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Resolved before the check: a symbolic link could be redirected after it.
        node_store = node_store.resolve()
        _check_owned(node_store)
        near = node_store / folder.name
        needed = sum(file.stat().st_size for file in folder.iterdir())
        way_out = "name another disk there, or empty the folder"
        build_folder(near, needed, lambda building: _copy(folder, building), way_out)
    except (OSError, ResourceError) as error:
        log.warning("images are read from %s, not from storage.node_store: %s", folder, error)
        return folder
    return near


def _check_owned(node_store: Path) -> None:
    """Raises ResourceError if another user could replace the images in `node_store`."""
    info = node_store.stat()
    if info.st_uid != os.getuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ResourceError(f"{node_store} must be writable by its owner, this user, alone")


def _copy(folder: Path, building: Path) -> None:
    shutil.copytree(folder, building, dirs_exist_ok=True)
    for file in building.iterdir():
        # Flushed before the rename: after a power cut the name must not exist without the data.
        with file.open("rb") as written:
            os.fsync(written.fileno())
