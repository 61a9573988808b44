"""`python -m benchmarks gpu [ROW ...]`: prints each line of the table as soon as it is measured.

It needs only the core, without Ray, MLflow and Optuna, and a GPU. `ranks --cpu` needs no GPU.
"""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter

import torch

from benchmarks.gpu import processes, ranks, speed, values
from benchmarks.gpu.bench import Bench, Lines, cache_folder
from benchmarks.machine import NO_GPU
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
    "speed": speed.speed,
    "sharing": processes.sharing,
}
HEADER = ("row", "result", "seconds")
# No line starts after this many seconds: the whole run must end within eight minutes.
LIMIT = 420


def main(names: Sequence[str], *, on_cpu: bool = False) -> bool:
    """Prints the rows of these names, or all rows. Returns False if a row failed.

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
        return measure(names or tuple(ROWS), bench, has_gpu=has_gpu or on_cpu)


def measure(names: Sequence[str], bench: Bench, *, has_gpu: bool, limit: float = LIMIT) -> bool:
    """Prints the rows, as not run without a GPU. Returns False if a line failed."""
    header, rule = markdown(HEADER, []).splitlines()
    print(f"{header}\n{rule}", flush=True)
    begin, failed = monotonic(), 0
    for row in names:
        if not has_gpu:
            show(row, NO_GPU, "")
            continue
        for what, do in ROWS[row](bench):
            if monotonic() - begin > limit:
                show(f"{row}: {what}", f"not run: {limit:g} s are over; name the row", "")
                continue
            failed += not one_line(f"{row}: {what}", do)
    return not failed


def one_line(name: str, do: Callable[[], str]) -> bool:
    """Prints a line. Returns False if it failed, after its traceback on standard error."""
    begin, is_good = perf_counter(), True
    try:
        result = do()
    except Exception as error:  # a line's failure must not hide the results of other lines
        traceback.print_exc(file=sys.stderr)
        reason = str(error).strip().partition("\n")[0]
        result, is_good = f"failed: {type(error).__name__}: {reason}", False
    show(name, result, f"{perf_counter() - begin:.1f}")
    torch.cuda.empty_cache()
    return is_good


def show(*cells: str) -> None:
    """Prints a line of the table."""
    print(markdown(cells, []).splitlines()[0], flush=True)
