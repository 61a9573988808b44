"""Checksums of the files of a folder written once, for `mtcon-ray audit`.

<folder>/checksums.json   {file: SHA-256 of its content}
"""

import hashlib
import json
from pathlib import Path

from mtcon_ray.base.root_files import write

FILE = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Writes the checksums of a folder's files into the folder."""
    # A name with a dot at its start belongs to an unfinished file, left by a killed process.
    names = sorted(path.name for path in folder.iterdir() if path.name[:1] != ".")
    checksums = {name: _digest(folder / name) for name in names if name != FILE}
    write(folder / FILE, json.dumps(checksums, indent=1))


def find_change(folder: Path) -> str | None:
    """Returns a description of a change since the checksums were written, else None.

    Returns None also for a folder without checksums.
    """
    if not (folder / FILE).exists():
        return None
    try:
        recorded = json.loads((folder / FILE).read_text(encoding="utf-8"))
        changed = [name for name, digest in recorded.items() if _digest(folder / name) != digest]
    except OSError as error:
        return f"{error.filename} cannot be read ({error.strerror})"
    except (ValueError, AttributeError):
        return f"{FILE} is damaged"
    return f"{changed[0]} has changed" if changed else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
