"""Cases of the fuzzing: a kind of file, its damage, and the commands for reading it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.fuzz.base import CUT, SPEC, SWEEP, TABLE, TAR, TAR_SPEC, WHOLE
from benchmarks.fuzz.networks import damage_network
from benchmarks.fuzz.pictures import damage_images
from benchmarks.fuzz.records import damage_events, damage_record
from benchmarks.fuzz.specs import damage_spec
from benchmarks.fuzz.tables import damage_table
from benchmarks.fuzz.tars import damage_tar

Command = tuple[str, ...]
ROOT = ("--root", "../root")
MODEL, TRIAL_MODEL = (
    f"../root/sweeps/{name}/checkpoints/trial-0000/model.pt" for name in (WHOLE, SWEEP)
)
RESUME: Command = ("train", SPEC, "--name", CUT, "--resume")
TRAIN = ("--name", "new", "--set", "train.epochs=1")
AUDITS: tuple[Command, ...] = tuple(
    ("audit", name, "--json", "--no-mlflow", *ROOT) for name in (SWEEP, WHOLE, CUT)
)
SHOWN: tuple[Command, ...] = (
    ("list", "--json", *ROOT),
    ("list", *ROOT),
    *(("status", name, *ROOT) for name in (SWEEP, WHOLE, CUT)),
    ("status", SWEEP, "--json", *ROOT),
    ("status", WHOLE, "--csv", *ROOT),
    ("best", SWEEP, *ROOT),
    ("best", SWEEP, "--json", *ROOT),
    ("report", SWEEP, *ROOT),
)
EXPORTS: tuple[Command, ...] = (
    ("export", SWEEP, "--to", "optuna", "--out", "../study", *ROOT),
    ("export", WHOLE, "--to", "optuna", "--out", "../study", *ROOT),
    ("export", SWEEP, "--to", "optuna", "--out", "../boards.journal", *ROOT),
)
# The commands run in the folder `shop`.
READS = (*SHOWN, *AUDITS, *EXPORTS, RESUME)


@dataclass(frozen=True)
class Kind:
    """A kind of file: its damaging function, and the commands for reading it.

    The function takes the case's folder, its generator, and the path of a folder, which only code
    run from a file would make. It returns a description. At most `limit` commands are drawn.
    """

    damage: Callable[[Path, Random, Path], str]
    commands: tuple[Command, ...]
    limit: int = 4


KINDS = {
    # `sweep` comes only after a refusal: it must also be refused before Ray starts.
    "spec": Kind(damage_spec, (("validate", SPEC), ("plan", SPEC, "--json"), ("sweep", SPEC))),
    "csv": Kind(
        damage_table,
        (
            ("validate", SPEC),
            ("plan", SPEC),
            ("train", SPEC, *TRAIN),
            ("init", TABLE, "images", "--output", "new.yaml"),
        ),
    ),
    "images": Kind(damage_images, (("validate", SPEC), ("train", SPEC, *TRAIN))),
    "tar": Kind(
        damage_tar,
        (
            ("validate", TAR_SPEC),
            ("train", TAR_SPEC, *TRAIN),
            ("init", TAR, "--output", "new.yaml"),
        ),
    ),
    "checkpoints": Kind(
        damage_network,
        (
            ("evaluate", MODEL, "--json", *ROOT),
            ("evaluate", TRIAL_MODEL, "--json", *ROOT),
            RESUME,
            *AUDITS,
            ("report", SWEEP, *ROOT),
            ("export", MODEL, "--out", "../exported", *ROOT),
        ),
        limit=5,
    ),
    "events": Kind(damage_events, READS, limit=6),
    "record": Kind(damage_record, READS, limit=6),
}


@dataclass(frozen=True)
class Case:
    """A damage, determined by its kind and its seed."""

    kind: str
    seed: int

    def damage(self, folder: Path, marker: Path) -> str:
        """Damages a copy of the undamaged files and returns a description."""
        rng = Random(f"{self.kind} {self.seed}")
        return " ".join(KINDS[self.kind].damage(folder, rng, marker).split())

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands for reading the damaged files, in their order."""
        kind = KINDS[self.kind]
        # A separate generator: a change of the damages does not change the commands.
        count = min(kind.limit, len(kind.commands))
        chosen = Random(f"commands {self.seed}").sample(range(len(kind.commands)), count)
        return tuple(kind.commands[index] for index in sorted(chosen))


def planned(kinds: list[str], rounds: int, seed: int) -> list[Case]:
    """Returns the cases: the kinds in turns, with increasing seeds."""
    return [Case(kinds[index % len(kinds)], seed + index) for index in range(rounds)]
