"""Processor time and peak memory of `validate` and `init` for large tables.

The peer is a plain script: pandas reads the CSV, the folder is listed, each path is looked up in
the list, and each label becomes a set. All are whole processes, in processor seconds, and the same
command for a table of 100 rows is subtracted: its imports say nothing about the table. Files are
hard links of some tiny images in folders of 1,000, with random labels.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import link
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmarks.table import markdown

SIZES = ((10_000, 3), (100_000, 3), (100_000, 40), (1_000_000, 3))
SMALL = 100  # rows
LINKS = 50_000  # of a file: file systems allow few
FOLDER = 1_000  # files
PROGRAM = (sys.executable, "-m", "mtcon_ray")
HEADER = (
    "rows x labels", "plain script", "validate", "ratio (aim 2.5)", "init", "ratio (aim 4)",
    "memory: plain", "validate", "init",
)  # fmt: skip
PLAIN = """
import os, sys
import pandas as pd

table, there = pd.read_csv("labels.csv"), set()
for folder, _, files in os.walk("images"):
    there.update(os.path.relpath(os.path.join(folder, file), "images") for file in files)
assert table["image"].isin(there).all()
print([len(set(table[name])) for name in table.columns[1:]])
"""
SPEC = """name: large
data: {kind: table, csv: labels.csv, images: images, image_column: image, tasks: [TASKS]}
storage: {root: root}
"""


class Cost(NamedTuple):
    """Processor seconds and peak memory in MiB of a command."""

    seconds: float
    memory: float

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds - other.seconds, self.memory - other.memory)


def measure(sizes: Sequence[tuple[int, int]] = SIZES) -> str:
    """Returns the table of costs beyond a table of SMALL rows."""
    rows = []
    for num_rows, num_labels in sizes:
        plain, validate, init = (
            large - small
            for large, small in zip(
                _costs(num_rows, num_labels), _costs(SMALL, num_labels), strict=True
            )
        )
        ratios = [f"{each.seconds / plain.seconds:.2f}" for each in (validate, init)]
        seconds = [f"{each.seconds:.1f} s" for each in (plain, validate, init)]
        memory = [f"{each.memory:,.0f} MiB" for each in (plain, validate, init)]
        cells = [seconds[0], seconds[1], ratios[0], seconds[2], ratios[1], *memory]
        rows.append([f"{num_rows:,} x {num_labels}", *cells])
    return markdown(HEADER, rows)


def _costs(num_rows: int, num_labels: int) -> list[Cost]:
    """Returns the costs of the plain script, of `validate` and of `init`."""
    with TemporaryDirectory() as folder:
        _write(Path(folder), num_rows, num_labels)
        init = "init", "labels.csv", "images", "-o", "new.yaml"
        commands = (
            (sys.executable, "-c", PLAIN),
            (*PROGRAM, "validate", "spec.yaml"),
            (*PROGRAM, *init),
        )
        return [_in_a_process(command, folder) for command in commands]


def _in_a_process(command: Sequence[str], folder: str) -> Cost:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_cost, command, folder).result()


def _cost(command: Sequence[str], folder: str) -> Cost:
    """Returns the cost of a command, the only child of this process."""
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def _write(folder: Path, num_rows: int, num_labels: int) -> None:
    """Writes a spec, a CSV with random labels, and its images."""
    rng = np.random.default_rng(0)
    names = [f"{row // FOLDER:04d}/{row:07d}.jpg" for row in range(num_rows)]
    for row, name in enumerate(names):
        if row % FOLDER == 0:
            (folder / "images" / name).parent.mkdir(parents=True)
        if row % LINKS == 0:
            source = folder / f"{row}.jpg"
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(source)
        link(source, folder / "images" / name)
    labels = [rng.integers(0, 10 + 3 * label, num_rows) for label in range(num_labels)]
    with (folder / "labels.csv").open("w") as file:
        file.write(",".join(["image", *(f"label_{label}" for label in range(num_labels))]) + "\n")
        for name, *classes in zip(names, *labels, strict=True):
            file.write(",".join([name, *(f"class {c}" for c in classes)]) + "\n")
    tasks = ", ".join(f"label_{label}" for label in range(num_labels))
    (folder / "spec.yaml").write_text(SPEC.replace("TASKS", tasks))
