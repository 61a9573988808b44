"""Costs of commands on the record of a sweep, and of its page in a browser."""

import shutil
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.pretended import NAME, Rows, record_sweep
from mtcon_ray.base import paths

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def reading_rows(num_trials: int, rounds: int) -> Rows:
    """Returns the costs of the commands for a recorded sweep, as users run them."""
    with TemporaryDirectory() as place:
        root = Path(place)
        folder = paths.sweep_folder(root, NAME)
        record_sweep(folder, num_trials)
        of = f"of {num_trials:,} trials"
        # Aims for 1,000 and 10,000 trials.
        report, commands = ("5", "0.5") if num_trials <= 1_000 else ("30", "")
        resume = "sweep", str(folder / paths.SPEC_FILE), "--name", NAME, "--resume"
        rows = [
            command_row(f"`report` {of}", report, root, 1, "report", NAME),
            page_row(folder / paths.REPORT_PAGE, of, rounds),
            command_row(f"`resume` of an ended sweep {of}", "6" if commands else "", root, 1,
                        *resume),
        ]  # fmt: skip
        rows += [
            command_row(f"`{words[0]}` {of}", commands, root, rounds, *words)
            for words in (("status", NAME), ("best", NAME), ("list",))
        ]
    return rows


def list_row(num_sweeps: int, rounds: int) -> tuple[str, str, str]:
    """Returns the cost of `list` for this many sweeps of 30 trials."""
    with TemporaryDirectory() as place:
        root = Path(place)
        first = paths.sweep_folder(root, NAME)
        record_sweep(first, 30)
        for number in range(2, num_sweeps + 1):
            shutil.copytree(first, first.with_name(f"many-{number}"))
        what = f"`list` of {num_sweeps} sweeps of 30 trials"
        return command_row(what, "0.5", root, rounds, "list")


def command_row(what: str, aim: str, root: Path, rounds: int, *words: str) -> tuple[str, str, str]:
    """Returns the processor and wall seconds of a command, each the median of the rounds."""
    command = [sys.executable, "-m", "mtcon_ray", *words, "--root", str(root)]
    cpu, wall = [], []
    for _ in range(rounds):
        begin, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = getrusage(RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        wall.append(perf_counter() - begin)
    return f"{what}: CPU s, wall s", f"{median(cpu):.2f}, {median(wall):.2f}", aim


def page_row(page: Path, of: str, rounds: int) -> tuple[str, str, str]:
    """Returns the size of a page, and the seconds to draw it in a browser beyond an empty page."""
    size = f"{page.stat().st_size / 1e6:.1f}"
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        return f"the page {of}, MB; no browser is installed", size, "3"
    more = [_drawing(found, page.as_uri()) - _drawing(found, "about:blank") for _ in range(rounds)]
    text = f"{size}, {median(more):.1f}"
    return f"the page {of}: MB, s to draw it in Chromium", text, "3, 2"


def _drawing(browser: str, address: str) -> float:
    with TemporaryDirectory() as folder:
        options = ("headless", "no-sandbox", "disable-gpu", f"user-data-dir={folder}",
                   f"screenshot={folder}/page.png")  # fmt: skip
        command = [browser, *(f"--{option}" for option in options), address]
        begin = perf_counter()
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return perf_counter() - begin
