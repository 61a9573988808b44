"""Damaged tars: members outside the folder, wrong headers, and huge unpacked sizes."""

import copy
import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from benchmarks.fuzz.base import TAR, TAR_SPEC
from benchmarks.fuzz.damage import damage_bytes, damage_file

Member = tuple[tarfile.TarInfo, bytes]
NAMES = (
    "../out.png", "{marker}", "a/../../out.png", "", ".", "..", "x" * 300, "\udcff.png", "a\nb.png",
    "0.png/1.png", "./0.png", "é.png",
)  # fmt: skip
TYPES = {
    "link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE,
    "pipe": tarfile.FIFOTYPE, "folder": tarfile.DIRTYPE, "sparse": tarfile.GNUTYPE_SPARSE,
    "unknown": b"Z", "continued": tarfile.CONTTYPE,
}  # fmt: skip


def damage_tar(folder: Path, rng: Random, marker: Path) -> str:
    """Damages the tar of the shop, and packs it in a third of the cases."""
    path = folder / "shop" / TAR
    told = []
    if rng.random() < 0.6:
        told.append(_rewrite(path, rng, marker))
    if rng.random() < 0.35:
        told.append(_pack(path, folder / "shop" / TAR_SPEC, rng))
        path = path.with_name(f"{TAR}.gz")
    if not told or rng.random() < 0.4:
        told.append(damage_file(path, rng, rng.choice((damage_bytes, _header))))
    return "; ".join(told)


def _members(path: Path) -> Iterator[Member]:
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            yield member, file.read()


def _rewrite(path: Path, rng: Random, marker: Path) -> str:
    """Writes the tar again with changes to a member or several members."""
    members = [*_members(path)]
    told = [rng.choice(WAYS)(members, rng) for _ in range(rng.choice((1, 1, 3))) if members]
    for member, _ in members:
        member.name = member.name.replace("{marker}", str(marker))
    format = rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    with tarfile.open(path, "w", format=format, errors="surrogateescape") as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return "; ".join(told)


def _outside(members: list[Member], rng: Random) -> str:
    members[rng.randrange(len(members))][0].name = name = rng.choice(NAMES)
    return f"a member named {name[:40]!r}"


def _typed(members: list[Member], rng: Random) -> str:
    what = rng.choice(sorted(TYPES))
    member = members[rng.randrange(len(members))][0]
    member.type, member.linkname = TYPES[what], rng.choice(("/etc/passwd", "1.jpg", member.name))
    return f"{member.name} is a {what} to {member.linkname}"


def _twice(members: list[Member], rng: Random) -> str:
    member, data = rng.choice(members)
    again = copy.copy(member)
    again.size = 7
    members += [(again, data[:7])] * rng.choice((1, 500))
    return f"{member.name} is there again"


def _dropped(members: list[Member], rng: Random) -> str:
    del members[rng.choice((0, 1, 30)) :]
    return f"{len(members)} members"


def _attributes(members: list[Member], rng: Random) -> str:
    member = members[rng.randrange(len(members))][0]
    name = rng.choice(
        ("size", "path", "linkpath", "GNU.sparse.map", "GNU.sparse.size", "charset", "x")
    )
    value = rng.choice(
        ("-1", "99999999999999", "x", "", "../out.png", "1,2,3", "0,99999999999", "é")
    )
    member.pax_headers = {name: value}
    return f"{member.name} has the header {name}={value}"


WAYS: tuple[Callable[[list[Member], Random], str], ...] = (
    _outside, _outside, _typed, _typed, _twice, _dropped, _attributes, _attributes,
)  # fmt: skip


def _header(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Changes a field of a header, and corrects its checksum."""
    headers = [at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"]
    if not headers:
        return damage_bytes(data, rng)
    at = rng.choice(headers)
    begin, size = rng.choice(
        ((0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100), (345, 155))
    )
    value = rng.choice(
        (b"\xff" * size, b"-1", b"7" * size, b"\x80" + b"\xff" * (size - 1), b"", b"9x")
    )
    block = bytearray(data[at : at + 512])
    block[begin : begin + size] = value[:size].ljust(size, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return data[:at] + bytes(block) + data[
        at + 512 :
    ], f"header at {at}: byte {begin} is {value[:12]!r}"


def _pack(path: Path, spec: Path, rng: Random) -> str:
    """Packs the tar with gzip, or in a variant, such as with 256 MiB of zeros at its end."""
    data, what = path.read_bytes(), rng.choice(("", "", "bomb", "twice", "not", "trailer"))
    match what:
        case "bomb":
            data += bytes(1 << 28)  # 256 MiB, about 0.25 MiB in the packed file
        case "twice":
            data = gzip.compress(data, 1, mtime=0)
    packed = data if what == "not" else gzip.compress(data, 1, mtime=0)
    path.with_name(f"{TAR}.gz").write_bytes(packed + (b"xyz" * 99 if what == "trailer" else b""))
    spec.write_text(spec.read_text().replace(TAR, f"{TAR}.gz"))
    return f"packed {what}".strip()
