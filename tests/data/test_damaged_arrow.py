"""Tests of Arrow files with wrong offsets, which pyarrow would follow out of the file."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.waiting import PATIENCE_SECONDS

READ = """
import sys
from pathlib import Path
from mtcon_ray.data.arrow_files import ArrowFiles
from mtcon_ray.errors import DataError
for folder in sys.argv[1:]:
    try:
        files = ArrowFiles(Path(folder))
        print(files.read_columns({"label": "tasks"}).columns["label"])
        print([files.read(name)[:2] for name in files.row_names()])
    except DataError as error:
        print("refused:", error)
"""


@pytest.mark.slow
def test_a_wrong_offset_is_refused_before_it_is_followed(tmp_path: Path) -> None:
    """In another process, because a wrong offset would end it."""
    labels = [f"{i:03}" * (i + 1) for i in range(9)]
    images = [{"bytes": b"x" * (100 * i + 7), "path": None} for i in range(9)]
    table = pa.table({"image": images, "label": labels})
    with pa.BufferOutputStream() as stream:
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        good = stream.getvalue().to_pybytes()
    folders: list[Path] = []
    for sizes in (map(len, labels), (100 * i + 7 for i in range(9))):
        offsets = struct.pack("<10i", *np.cumsum([0, *sizes]))
        assert good.count(offsets) == 1
        for wrong in (2147483632, 10_000_000, -1, -5, 100_000_000):
            changed = offsets[:16] + struct.pack("<i", wrong) + offsets[20:]
            folders.append(tmp_path / str(len(folders)))
            folders[-1].mkdir()
            (folders[-1] / "train.arrow").write_bytes(good.replace(offsets, changed))
    done = subprocess.run(
        [sys.executable, "-c", READ, *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for folder, line in zip(folders, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"refused: {folder}/train.arrow is not a whole Parquet or Arrow")
