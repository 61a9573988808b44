"""Checksums of the files of a folder that is written once, to detect later changes.

<folder>/checksums.json   {"block_bytes": size of a block, "crc32": {file: [CRC-32 of each block]}}

They detect damage by a disk or a program, not an attack: CRC-32 is not a cryptographic hash.
"""

import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from mtcon_ray.cpus import usable_cpus
from mtcon_ray.data.disk import whole_file

FILE = "checksums.json"
BLOCK_BYTES = 4 << 20
# CRC-32 and reading release Python's lock.
MAX_THREADS = 8


def write_checksums(folder: Path) -> None:
    """Writes the checksums of a folder's files beside them. Raises StorageError."""
    names = sorted(path.name for path in _files(folder))
    crc32 = {name: _blocks(folder / name, BLOCK_BYTES) for name in names}
    with whole_file(folder / FILE) as file:
        file.write(json.dumps({"block_bytes": BLOCK_BYTES, "crc32": crc32}).encode())


def find_change(folder: Path) -> str | None:
    """Describes what has changed in a folder since its checksums were written; None if nothing has.

    Returns None also for a folder without checksums: earlier versions wrote none. Files are read
    once per process, and again if their inode, size or modification time changes.
    """
    try:
        stamps = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
        own = tuple((name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in stamps)
        return _find_change(folder, own) if (folder / FILE).exists() else None
    except OSError as error:
        return f"{error.filename or folder} cannot be read ({error.strerror})"


@lru_cache(maxsize=64)
def _find_change(folder: Path, stamps: object) -> str | None:
    """Compares all blocks; `stamps` changes with the files."""
    try:
        recorded = json.loads((folder / FILE).read_text(encoding="utf-8"))
        crc32 = {name: list(blocks) for name, blocks in recorded["crc32"].items()}
        found = {name: _blocks(folder / name, recorded["block_bytes"]) for name in crc32}
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{FILE} is damaged"
    for name, expected in crc32.items():
        wrong = [i for i, (a, b) in enumerate(zip_longest(found[name], expected)) if a != b]
        if wrong:
            return f"{name} has changed in {len(wrong)} of {len(expected)} blocks"
    return None


def _blocks(path: Path, block_bytes: int) -> list[int]:
    """Returns the CRC-32 of each block of a file."""
    with path.open("rb") as file, ThreadPoolExecutor(min(MAX_THREADS, usable_cpus())) as pool:
        descriptor = file.fileno()

        def checksum(start: int) -> int:
            return zlib.crc32(os.pread(descriptor, block_bytes, start))

        return list(pool.map(checksum, range(0, os.fstat(descriptor).st_size, block_bytes)))


def _files(folder: Path) -> list[Path]:
    # A name that begins with a dot belongs to an unfinished file, left by a kill.
    return [p for p in folder.iterdir() if p.name != FILE and not p.name.startswith(".")]
