"""`python -m benchmarks [STAGE ...]` runs stages and prints their tables.

Without names it runs all except the whole-process stages. `python -m benchmarks gpu [ROW ...]`
checks and times a GPU, its row `ranks` checks all GPUs of the machine.
`python -m benchmarks fuzz [KIND ...]` damages files and reads them.
`python -m benchmarks faults [KIND ...]` breaks runs and resumes them.
"""

import argparse
import sys
from importlib import import_module

from benchmarks.machine import describe_machine

# Imported separately: the core's stages also run without Ray, Optuna and MLflow.
STAGES = (
    "decoding",
    "views",
    "losses",
    "training",
    "profiles",
    "precision",
    "probes",
    "idle_trial",
    "tracking",
    "scale",
    "large_loss",
    "cadence",
    "search_curves",
    "search",
)
# Not part of a bare `python -m benchmarks`: these stages start processes and take minutes.
ONLY_WHEN_NAMED = ("startup", "winner", "tables", "predictions")
# The names after it are its rows.
GPU = "gpu"
# Programs with their own options.
PROGRAMS = ("fuzz", "faults")


def main() -> None:
    """Prints a description of the machine, then the table of each stage after its measurement."""
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        passed = import_module(f"benchmarks.{sys.argv[1]}.program").main(sys.argv[2:])
        sys.exit(0 if passed else 1)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    named = ", ".join((*STAGES, *ONLY_WHEN_NAMED, GPU, *PROGRAMS))
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=named)
    parser.add_argument("--cpu", action="store_true", help="`gpu ranks`: two ranks on the CPU")
    parser.add_argument("--gpu", action="store_true", help="the same as `gpu` before the names")
    options = parser.parse_args()
    names = options.stages or list(STAGES)
    if options.gpu:
        names = [GPU, *options.stages]
    if options.cpu and names != [GPU, "ranks"]:
        parser.error("--cpu is an option of `gpu ranks` alone")
    if names[0] == GPU:
        _measure_gpu(parser, names[1:], on_cpu=options.cpu)
        return
    for name in names:
        if name not in (*STAGES, *ONLY_WHEN_NAMED):
            known = ", ".join((*STAGES, *ONLY_WHEN_NAMED))
            parser.error(f"STAGE must be one of {known}, got {name}")
    print(describe_machine(), flush=True)
    for name in names:
        print(f"\n{import_module(f'benchmarks.{name}').measure()}", flush=True)


def _measure_gpu(parser: argparse.ArgumentParser, rows: list[str], *, on_cpu: bool) -> None:
    """Prints the rows of the GPU and exits with 1 if a row failed."""
    from benchmarks.gpu.rows import ROWS, main

    for row in rows:
        if row not in ROWS:
            parser.error(f"ROW must be one of {', '.join(ROWS)}, got {row}")
    print(f"{describe_machine()}\n", flush=True)
    if not main(rows, on_cpu=on_cpu):
        parser.exit(1)


if __name__ == "__main__":
    main()
