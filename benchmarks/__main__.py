"""`python -m benchmarks [STAGE ...]`: run the stages, all by default, and print their tables."""

import argparse
from importlib import import_module

from benchmarks.machine import describe_machine

# Imported one by one: those of the core run where Ray, Optuna and MLflow are not installed.
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
    "suggestions",
    "large_loss",
    "cadence",
    "search_curves",
    "search",
)


def main() -> None:
    """Print the machine, then each stage's table as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    names = parser.parse_args().stages or list(STAGES)
    for name in names:
        if name not in STAGES:
            parser.error(f"STAGE must be one of {', '.join(STAGES)}, got {name}")
    print(describe_machine(), flush=True)
    for name in names:
        print(f"\n{import_module(f'benchmarks.{name}').measure()}", flush=True)


if __name__ == "__main__":
    main()
