"""`python -m benchmarks [STAGE ...]`: run the stages, all by default, and print their tables."""

import argparse

from benchmarks import (
    cadence,
    compiled,
    idle_trial,
    large_loss,
    losses,
    probes,
    scale,
    search,
    tracking,
    training,
    views,
)
from benchmarks.machine import describe_machine

STAGES = {
    "views": views,
    "losses": losses,
    "training": training,
    "compiled": compiled,
    "probes": probes,
    "idle_trial": idle_trial,
    "tracking": tracking,
    "scale": scale,
    "large_loss": large_loss,
    "cadence": cadence,
    "search": search,
}


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
        print(f"\n{STAGES[name].measure()}", flush=True)


if __name__ == "__main__":
    main()
