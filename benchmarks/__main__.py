"""`python -m benchmarks [STAGE ...]` runs stages and prints their tables.

Without names it runs all but those that start whole processes.
"""

import argparse
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
    "gpu_views",
    "gpu_training",
    "gpu_trials",
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


def main() -> None:
    """Prints a description of the machine, then each stage's table when it is measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "stages", nargs="*", metavar="STAGE", help=", ".join((*STAGES, *ONLY_WHEN_NAMED))
    )
    names = parser.parse_args().stages or list(STAGES)
    for name in names:
        if name not in (*STAGES, *ONLY_WHEN_NAMED):
            known = ", ".join((*STAGES, *ONLY_WHEN_NAMED))
            parser.error(f"STAGE must be one of {known}, got {name}")
    print(describe_machine(), flush=True)
    for name in names:
        print(f"\n{import_module(f'benchmarks.{name}').measure()}", flush=True)


if __name__ == "__main__":
    main()
