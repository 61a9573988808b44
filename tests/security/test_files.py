"""Malicious input files: each gives one clear error, in bounded time, and runs no code."""

import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_files import UnreadableImageError
from mtcon_ray.errors import CheckpointError, DataError, SpecError
from mtcon_ray.export.trained_network import evaluate_checkpoint, load_network
from mtcon_ray.spec.run_spec import apply_override, load_spec
from mtcon_ray.training import checkpoint
from tests.data.test_decoding import encoded
from tests.models.test_weights import make

# Each is refused in a second. Without a refusal it never ends.
soon = pytest.mark.timeout(60)
BASE = "name: a\ndata: {kind: synthetic, tasks: [shape]}\n"


class Payload:
    """An object whose unpickling creates a folder."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("kind", ["zip", "raw", "legacy"])
@pytest.mark.parametrize("reader", ["checkpoint", "evaluate", "weights"])
def test_code_in_a_checkpoint_never_runs(tmp_path: Path, kind: str, reader: str) -> None:
    path, ran = tmp_path / "evil.pt", tmp_path / "ran"
    state = {"format": 1, "spec": "{}", "network": Payload(ran)}
    if kind == "raw":
        path.write_bytes(pickle.dumps(state))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=kind == "zip")
    readers = {
        "checkpoint": lambda: checkpoint.load(path),
        "evaluate": lambda: evaluate_checkpoint(path, root=tmp_path, callbacks=Callbacks()),
        "weights": lambda: make("resnet18", path),
    }
    with pytest.raises(CheckpointError) as told:
        readers[reader]()
    assert not ran.exists()
    assert "weights_only=False" not in str(told.value)


def test_a_checkpoint_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data/0", b"\0" * 100_000)
    with pytest.raises(CheckpointError, match="compressed parts"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "state", [{}, {"spec": 5}, {"spec": "[" * 5000}, {"spec": '{"name": "a"}', "sizes": 1}]
)
def test_a_checkpoint_without_its_parts_is_refused(tmp_path: Path, state: dict[str, Any]) -> None:
    torch.save({"format": 1, **state}, tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match=r"odd\.pt is no checkpoint of mtcon-ray"):
        load_network(tmp_path / "odd.pt")


@soon
@pytest.mark.parametrize("anchor", ["&a", "&-", "&_x"])
def test_aliases_are_refused_before_they_grow(tmp_path: Path, anchor: str) -> None:
    """Fifty doublings of a list would not fit into memory when printed; safe_load accepts them."""
    lines = [f"x0: {anchor}0 [x, x]"]
    star = anchor.replace("&", "*")
    lines += [f"x{i}: {anchor}{i} [{star}{i - 1} , {star}{i - 1} ]" for i in range(1, 50)]
    (tmp_path / "s.yaml").write_text(BASE + "\n".join(lines))
    told = r"must not use YAML anchors \(& or \*\) or tags \(!\), got one in line 3"
    with pytest.raises(SpecError, match=told):
        load_spec(tmp_path / "s.yaml")
    with pytest.raises(SpecError, match="--set seed must not use YAML anchors"):
        apply_override({}, f"seed=[{anchor}0 [1], {star}0 ]")


def test_ampersands_and_stars_in_text_are_no_anchors(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f'{BASE}tracking: {{experiment: "R&D *x &y"}}')
    assert load_spec(tmp_path / "s.yaml").tracking.experiment == "R&D *x &y"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        # PyYAML 6.0.4 has a limit of its own, of 1,000.
        ("x: " + "[" * 900 + "]" * 900, "at most 50 levels"),
        ("x: " + "[" * 5000 + "]" * 5000, "at most 50 levels|maximum nesting depth"),
        ("x: " + "{a: " * 900 + "1" + "}" * 900, "at most 50 levels"),
        ("seed: " + "9" * 5000, "4300 digits"),
        ("seed: 2020-99-99", "must be a valid integer"),
        ("x: !!python/object/apply:os.mkdir [ran]", "must not use YAML anchors"),
    ],
    ids=["lists", "many lists", "mappings", "number", "date", "object"],
)
def test_yaml_made_to_harm_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(BASE + line)
    with pytest.raises(SpecError, match=message) as told:
        load_spec(tmp_path / "s.yaml")
    assert len(str(told.value)) < 1000


def header(name: str, size: int = 512, kind: bytes = tarfile.REGTYPE, **raw: bytes) -> bytes:
    """Returns a tar header of 512 bytes with bytes replaced at `at<n>` and a valid checksum."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    content = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    for place, value in raw.items():
        start = int(place.removeprefix("at"))
        content[start : start + len(value)] = value
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content)
    return bytes(content)


BLOCK, END = b"x" * 512, b"\0" * 1024
SPARSE = tarfile.TarInfo("a.png")
SPARSE.size, SPARSE.pax_headers = 3, {"GNU.sparse.map": "0,a", "GNU.sparse.size": "x"}
TERABYTE = b"\x80" + (1 << 40).to_bytes(11, "big")


@soon
@pytest.mark.parametrize(
    "content",
    [
        header("a.png", 512, tarfile.GNUTYPE_SPARSE, at386=b"0" * 11 + b"\0" + b"0" * 8 + b"1000",
               at483=TERABYTE) + BLOCK,
        header("a.png", at124=b"\xff" * 12) + BLOCK,
        header("a.png", 1 << 40) + BLOCK,
        header("x", 0, tarfile.XHDTYPE) * 3000 + header("a.png", 0),
        header("a.png", 0, tarfile.SYMTYPE, at157=b"/etc/passwd"),
        header("a.png", 0, tarfile.LNKTYPE, at157=b"/etc/passwd"),
        header("a.png", 0, tarfile.CHRTYPE, at329=b"0000001\x000000005\0"),
        header("a.png", 0, tarfile.FIFOTYPE),
        header("b.png", 512)[:100],
        SPARSE.tobuf(tarfile.PAX_FORMAT) + BLOCK,
    ],
    ids=["sparse", "negative", "huge", "chain", "link", "hard", "device", "pipe", "cut", "pax"],
)  # fmt: skip
def test_a_tar_made_to_harm_yields_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "images.tar").write_bytes(content + END)
    with pytest.raises((DataError, UnreadableImageError)):
        open_files(tmp_path / "images.tar").read("a.png")


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.png", "a/../../a.png", "a\0.png"])
def test_names_that_lead_out_are_found_in_tars_too(tmp_path: Path, name: str) -> None:
    (tmp_path / "images.tar").write_bytes(header("a.png") + BLOCK + END)
    assert open_files(tmp_path / "images.tar").find_outside(["a.png", name]) == 1


@soon
def test_a_pipe_among_the_images_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    files = open_files(tmp_path)
    with pytest.raises(UnreadableImageError):
        files.read("a.png")
    assert files.digest(["a.png"])


def test_an_image_that_would_fill_the_memory_is_refused() -> None:
    """The file of 25 kB decodes to 100 million pixels."""
    with pytest.raises(UnreadableImageError, match="100000000 pixels"):
        decode_image(encoded(Image.new("1", (10_000, 10_000))), 32)


def test_only_formats_of_photographs_are_tried() -> None:
    """Pillow would pass PostScript to Ghostscript."""
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    for data in (page, encoded(Image.new("L", (8, 8)), "PCX"), struct.pack("<IHH", 0x100, 1, 1)):
        with pytest.raises(UnreadableImageError, match="not an image"):
            decode_image(data, 32)
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000"):
        assert decode_image(encoded(Image.new("RGB", (8, 8)), kind), 4).shape == (4, 4, 3)
