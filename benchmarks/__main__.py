"""`python -m benchmarks [STAGE ...]` runs stages and prints their tables.

Without names it runs all but those that start whole processes. `python -m benchmarks gpu [ROW ...]`
checks and times one GPU. `python -m benchmarks fuzz [KIND ...]` damages files and reads them,
`python -m benchmarks faults [KIND ...]` breaks runs and resumes them.
"""

import argparse
import sys
from importlib import import_module

from benchmarks.machine import describe_machine

# Imported one by one: the stages of the core also run without Ray, Optuna and MLflow installed.
STAGES = (
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
# Not part of a bare `python -m benchmarks`: they start whole processes and take minutes.
ONLY_WHEN_NAMED = ("startup", "winner")
# The names after it are its rows.
GPU = "gpu"
# They have options of their own.
PROGRAMS = ("fuzz", "faults")


def main() -> None:
    """Prints a description of the machine, then each stage's table when it is measured."""
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        passed = import_module(f"benchmarks.{sys.argv[1]}.program").main(sys.argv[2:])
        sys.exit(0 if passed else 1)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    named = ", ".join((*STAGES, *ONLY_WHEN_NAMED, GPU, *PROGRAMS))
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=named)
    names = parser.parse_args().stages or list(STAGES)
    if names[0] == GPU:
        _measure_gpu(parser, names[1:])
        return
    for name in names:
        if name not in (*STAGES, *ONLY_WHEN_NAMED):
            known = ", ".join((*STAGES, *ONLY_WHEN_NAMED))
            parser.error(f"STAGE must be one of {known}, got {name}")
    print(describe_machine(), flush=True)
    for name in names:
        print(f"\n{import_module(f'benchmarks.{name}').measure()}", flush=True)


def _measure_gpu(parser: argparse.ArgumentParser, rows: list[str]) -> None:
    """Prints the rows of the GPU; the command ends with 1 if one failed."""
    from benchmarks.gpu.rows import ROWS, main

    for row in rows:
        if row not in ROWS:
            parser.error(f"ROW must be one of {', '.join(ROWS)}, got {row}")
    print(f"{describe_machine()}\n", flush=True)
    if not main(rows):
        parser.exit(1)


if __name__ == "__main__":
    main()
