"""Damages for any file: to bytes, to text, and to nested plain values.

Each function takes the random generator of its case, which makes the case repeatable, and returns
a description of the damage.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

Damaged = tuple[bytes, str]
Path_ = tuple[str | int, ...]
# Beginnings of files of other kinds.
MAGIC = (
    b"PK\x03\x04", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"\x1f\x8b\x08\x00", b"GIF89a",
    b"%PDF-1.7\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\x93NUMPY\x01\x00", b"\x80\x04\x95",
    b"SQLite format 3\x00", b"PAR1", b"II*\x00", b"RIFF\xff\xff\xff\x7fWEBPVP8 ", b"\x7fELF",
    b"BZh9", b"\xfd7zXZ\x00",
)  # fmt: skip
BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
ODD_TEXTS = (
    "", " ", "\0", "\n", "nan", "null", "-", "~", "*", "é", "\ud7ff\u202e", "🙂", "'", '"', "a\nb",
    "../../etc/passwd", "/etc/passwd", "~root", "file:///etc/passwd", "s3://", "s3://a/b", "C:\\x",
    "x" * 300, "x" * 100_000, "0x10", "1e5", "1_000", "=1+1", "{{x}}", "%s%n", "<b>", "\x1b[2J",
    "name", "small", "resnet18", "mtcon", "colour", "image",
)  # fmt: skip
NAN = float("nan")
ODD_NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 0.0, -0.0, 0.5, 1.5, -0.1, 1e-320, 1e300, 2**31, 2**63, 2**64, 10**30, 10**400,
    -(10**30), NAN, float("inf"), float("-inf"), True, False, None,
)  # fmt: skip


def odd_value(rng: Random, depth: int = 0) -> Any:
    """Returns a value unexpected in any field: of any plain type, empty, huge or nested."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(ODD_NUMBERS)
    if kind < 5 or depth > 3:
        return rng.choice(ODD_TEXTS)
    if kind == 5:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        keys = (rng.choice(ODD_TEXTS) for _ in range(rng.randrange(3)))
        return {key: odd_value(rng, depth + 1) for key in keys}
    nested: Any = 1
    for _ in range(rng.choice((5, 60, 300))):
        nested = [nested] if rng.random() < 0.5 else {"x": nested}
    return nested


def shown(value: Any) -> str:
    """Returns a value in at most 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of more than 4300 digits
        text = "a long integer"
    return text if len(text) <= 80 else f"{text[:60]} ... ({len(text)} characters)"


def places(tree: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Yields the path of each value within mappings and lists."""
    items: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(tree, dict):
        items = iter(tree.items())
    elif isinstance(tree, list):
        items = iter(enumerate(tree))
    for key, value in items:
        yield (*at, key)
        yield from places(value, (*at, key))


def damage_tree(tree: Any, rng: Random) -> str:
    """Changes a value of nested mappings and lists in place: its value, its type or its key."""
    found = [*places(tree)]
    if not found:
        return "nothing to change"
    *at, key = rng.choice(found)
    parent = tree
    for step in at:
        parent = parent[step]
    where = ".".join(map(str, (*at, key)))
    match rng.randrange(8):
        case 0:
            del parent[key]
            return f"removed {where}"
        case 1 if isinstance(parent, dict):
            new = rng.choice(ODD_TEXTS)
            parent[new] = parent.pop(key)
            return f"renamed {where} to {shown(new)}"
        case 2:
            other = rng.choice(found)
            value = tree
            for step in other:
                value = value[step]
            # Copied, because a tree that contains itself would be endless.
            parent[key] = _copied(value)
            return f"{where} has the value of {'.'.join(map(str, other))}"
        case 3 if isinstance(parent, list) and isinstance(key, int):
            parent.append(_copied(parent[key]))
            return f"{where} is there twice"
        case 4:
            parent[key] = [parent[key]]
            return f"{where} in a list"
        case 5:
            parent[key] = str(parent[key])
            return f"{where} as text"
        case _:
            parent[key] = odd_value(rng)
            return f"{where} = {shown(parent[key])}"


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [*map(_copied, value)] if isinstance(value, list) else value


def _part(data: bytes, rng: Random) -> tuple[int, int]:
    """Returns begin and end of a part of the data, with short parts more often."""
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 2, 8, 64, 512, len(data))))


def flip(data: bytes, rng: Random) -> Damaged:
    """Flips single bits."""
    changed, count = bytearray(data), rng.choice((1, 1, 3, 20))
    for _ in range(count if data else 0):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed), f"{count} bits flipped"


def truncate(data: bytes, rng: Random) -> Damaged:
    """Cuts off the end."""
    end = rng.choice((0, 1, len(data) // 2, max(0, len(data) - 1), rng.randrange(len(data) + 1)))
    return data[:end], f"cut to {end} of {len(data)} bytes"


def remove(data: bytes, rng: Random) -> Damaged:
    """Removes a part."""
    begin, end = _part(data, rng)
    return data[:begin] + data[end:], f"bytes {begin} to {end} removed"


def repeat(data: bytes, rng: Random) -> Damaged:
    """Repeats a part."""
    begin, end = _part(data, rng)
    times = rng.choice((1, 1, 50))
    return data[:end] + data[begin:end] * times + data[end:], f"bytes {begin} to {end} repeated"


def overwrite(data: bytes, rng: Random) -> Damaged:
    """Writes zeros, ones or random bytes over a part."""
    begin, end = _part(data, rng)
    what = rng.choice(("zeros", "ones", "random bytes"))
    size = end - begin
    new = {"zeros": bytes(size), "ones": b"\xff" * size}.get(what) or rng.randbytes(size)
    return data[:begin] + new + data[end:], f"bytes {begin} to {end} are {what}"


def insert(data: bytes, rng: Random) -> Damaged:
    """Inserts random bytes or null bytes."""
    at = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    new = rng.choice((b"\0", b"\n", b'"', b"\xff\xfe", rng.randbytes(40), bytes(5000)))
    return data[:at] + new + data[at:], f"{len(new)} bytes inserted at {at}"


def mistake(data: bytes, rng: Random) -> Damaged:
    """Gives the file the beginning of another kind, or only that."""
    magic = rng.choice(MAGIC)
    kept = rng.choice((data[len(magic) :], data, b""))
    return magic + kept, f"begins with {magic!r}, {len(kept)} bytes follow"


def recode(data: bytes, rng: Random) -> Damaged:
    """Writes text in another encoding, with other line ends or with a byte order mark."""
    what = rng.choice(("utf-16", "utf-32", "cp1252", "bom", "crlf", "cr", "boms"))
    text = data.decode("utf-8", "replace")
    match what:
        case "bom":
            return rng.choice(BOMS) + data, "a byte order mark"
        case "boms":
            return BOMS[0] * 3 + data, "three byte order marks"
        case "crlf" | "cr":
            return data.replace(b"\n", b"\r\n" if what == "crlf" else b"\r"), f"lines end in {what}"
        case "cp1252":
            return text.replace("e", "é").encode("cp1252", "replace"), "é in cp1252"
    return text.encode(what), f"in {what}"


BYTES: tuple[Callable[[bytes, Random], Damaged], ...] = (
    flip, truncate, remove, repeat, overwrite, insert, mistake,
)  # fmt: skip


def damage_bytes(data: bytes, rng: Random) -> Damaged:
    """Applies one damage to a binary file's content."""
    return rng.choice(BYTES)(data, rng)


def damage_text(data: bytes, rng: Random) -> Damaged:
    """Applies one damage to a text file's content."""
    return rng.choice((*BYTES, recode, recode))(data, rng)


def replace_file(path: Path, rng: Random) -> str:
    """Replaces a file by nothing, a folder, a link to itself, or an empty file."""
    path.unlink()
    match rng.randrange(4):
        case 0:
            return f"{path.name} is removed"
        case 1:
            path.mkdir()
            return f"{path.name} is a folder"
        case 2:
            path.symlink_to(path)
            return f"{path.name} is a link to itself"
        case _:
            path.write_bytes(b"")
            return f"{path.name} is empty"


def damage_file(
    path: Path, rng: Random, way: Callable[[bytes, Random], Damaged] = damage_bytes
) -> str:
    """Damages a file's content, or replaces the file in a tenth of the cases."""
    if rng.random() < 0.1:
        return replace_file(path, rng)
    data, what = way(path.read_bytes(), rng)
    path.write_bytes(data)
    return f"{path.name}: {what}"


def copy_base(base: Path, case: Path) -> None:
    """Copies the undamaged files to a case's folder and removes its old content."""
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(base, case)
