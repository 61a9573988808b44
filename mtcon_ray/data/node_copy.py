"""A store's copy on a node's own disk, for roots that lie on a slower file system.

<node store>/<key>/        as below the root's store
<node store>/<key>.lock    held while <key>.building is filled and renamed to <key>
"""

import logging
import os
import shutil
import stat
from pathlib import Path

from mtcon_ray.data.disk import check_disk, locked
from mtcon_ray.errors import ResourceError

log = logging.getLogger(__name__)


def node_copy(folder: Path, node_store: Path) -> Path:
    """The store's copy below `node_store`, made by the first process of this node that asks.

    `folder` itself, with a warning, where this node has no room for a copy or may not write it, or
    where others may: one node with a full disk then trains from the root, and fails no trial.
    """
    try:
        node_store.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A link could be turned elsewhere after it was looked at.
        node_store = node_store.resolve()
        _check_owned(node_store)
        near = node_store / folder.name
        if not near.exists():
            with locked(near.with_suffix(".lock")):
                if not near.exists():
                    _copy(folder, near)
    except (OSError, ResourceError) as error:
        log.warning("images are read from %s, not from storage.node_store: %s", folder, error)
        return folder
    return near


def _check_owned(node_store: Path) -> None:
    """Raises ResourceError where another user could put images of theirs in the place of ours."""
    info = node_store.stat()
    if info.st_uid != os.getuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ResourceError(f"{node_store} must be writable by its owner, this user, alone")


def _copy(folder: Path, near: Path) -> None:
    building = near.with_suffix(".building")
    shutil.rmtree(building, ignore_errors=True)  # of a process that was killed
    needed = sum(file.stat().st_size for file in folder.iterdir())
    check_disk(needed, near.parent, "name another disk there, or empty the folder")
    try:
        shutil.copytree(folder, building)
        for file in building.iterdir():
            # A name must not outlive a crash that its bytes did not.
            with file.open("rb") as written:
                os.fsync(written.fileno())
        building.rename(near)
    finally:
        shutil.rmtree(building, ignore_errors=True)
