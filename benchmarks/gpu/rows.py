"""`python -m benchmarks gpu [ROW ...]`: prints each line of the table as soon as it is measured.

It needs a GPU and, except for `winner`, only the core. `ranks --cpu` needs no GPU.
"""

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter

import torch

from benchmarks.gpu import limits, peers, processes, ranks, speed, values, winner
from benchmarks.gpu.bench import Bench, Lines, cache_folder
from benchmarks.machine import NO_GPU, gpu
from benchmarks.table import markdown

ROWS: dict[str, Callable[[Bench], Lines]] = {
    "device": speed.device,
    "launch": speed.launch,
    "methods": values.methods,
    "views": values.views,
    "optimizers": values.optimizers,
    "chunks": values.chunks,
    "graphs": values.graphs,
    "streaming": values.streaming,
    "resume": values.resume,
    "checkpoints": speed.checkpoints,
    "probes": speed.probes,
    "memory": speed.memory,
    "ranks": ranks.ranks,
    "compile": speed.compiling,
    "speed": limits.speed,
    "small_batch": limits.small_batch,
    "network": limits.network,
    "parts": limits.parts,
    "sharing": processes.sharing,
    "peers": peers.peers,
    "winner": winner.winner,
}
# Rows that take minutes, because they compile or compare with other programs.
ONLY_WHEN_NAMED = ("network", "parts", "peers", "winner")
HEADER = ("row", "result", "seconds")
# No line starts after this many seconds: the whole run must end within eight minutes.
LIMIT = 420


def main(names: Sequence[str], *, on_cpu: bool = False) -> bool:
    """Prints the rows of these names, or all that take no minutes. Returns False if one failed.

    `on_cpu` takes the CPU in the place of the GPU.
    """
    with TemporaryDirectory(prefix="mtcon-ray-gpu-") as folder:
        has_gpu = torch.cuda.is_available()
        is_fast = has_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        bench = Bench(
            torch.device("cpu") if on_cpu else torch.device("cuda", 0),
            Path(folder),
            cache_folder(),
            half="bfloat16" if is_fast else "float16",
        )
        rows = names or [row for row in ROWS if row not in ONLY_WHEN_NAMED]
        return measure(rows, bench, has_gpu=has_gpu or on_cpu)


def measure(names: Sequence[str], bench: Bench, *, has_gpu: bool, limit: float = LIMIT) -> bool:
    """Prints the rows, as not run without a GPU. Returns False if a line failed.

    No line starts after `limit` seconds. If lines are missing or failed, the next call with the
    same rows, device and torch prints the finished lines again, and measures the others.
    """
    header, rule = markdown(HEADER, []).splitlines()
    print(f"{header}\n{rule}", flush=True)
    finished = Finished(bench, names)
    begin, failed, late = monotonic(), 0, 0
    for row in names:
        if not has_gpu:
            show(row, NO_GPU, "")
            continue
        for what, do in ROWS[row](bench):
            name = f"{row}: {what}"
            if name in finished.lines:
                show(*finished.lines[name])
            elif monotonic() - begin > limit:
                late += 1
                show(name, f"not run: {limit:g} s are over; the same command continues", "")
            else:
                failed += not one_line(name, do, finished)
    if not late and not failed:
        finished.path.unlink(missing_ok=True)
    return not failed


class Finished:
    """The lines of a call in a file, for the next call with the same rows, device and torch."""

    def __init__(self, bench: Bench, names: Sequence[str]) -> None:
        call = json.dumps([*names, gpu(), str(bench.device), torch.__version__])
        self.path = bench.kept / f"lines-{sha256(call.encode()).hexdigest()[:12]}.json"
        self.lines: dict[str, list[str]] = {}
        if self.path.exists():
            self.lines = json.loads(self.path.read_text())

    def add(self, *cells: str) -> None:
        """Keeps a line by its name, the first cell."""
        self.lines[cells[0]] = list(cells)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Replaced as a whole: the call may be killed.
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.lines))
        part.replace(self.path)


def one_line(name: str, do: Callable[[], str], finished: Finished) -> bool:
    """Prints a line, and keeps it. Returns False if it failed, after its traceback."""
    begin, is_good = perf_counter(), True
    try:
        result = do()
    except Exception as error:  # a line's failure must not hide the results of other lines
        traceback.print_exc(file=sys.stderr)
        reason = str(error).strip().partition("\n")[0]
        result, is_good = f"failed: {type(error).__name__}: {reason}", False
    cells = name, result, f"{perf_counter() - begin:.1f}"
    show(*cells)
    if is_good and not result.startswith("not run"):
        finished.add(*cells)
    torch.cuda.empty_cache()
    return is_good


def show(*cells: str) -> None:
    """Prints a line of the table."""
    print(markdown(cells, []).splitlines()[0], flush=True)
