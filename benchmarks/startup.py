"""Time until a command answers, in units of `python -c "import torch"` on the same machine.

Each command is a separate process, and all packages have bytecode, as after their first use. The
root holds a finished sweep of a tiny trial.

`sweep` is measured until its first training step is done, in units of a bare Tune function: a
script that imports torch in a trial and takes a single step. The sweep's epochs have a single step,
so its first step is done before the event of the first epoch. The event's time counts. The bare
function reports its own time. The sweep tracks by MLflow and reads its images from the cache, like
every sweep after a root's first.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.table import markdown
from benchmarks.timing import Times, interleaved, ratio
from mtcon_ray.base.paths import event_file, sweep_folder
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Reported

Seconds = list[float]
UNIT = (sys.executable, "-c", "import torch")
PROGRAM = (sys.executable, "-m", "mtcon_ray")
NAME = "tiny"
SPEC = f"""name: {NAME}
data: {{kind: synthetic, num_items: 300, tasks: [shape], held_out: []}}
views: {{size: 16}}
model: {{encoder: {{name: small, width: 4}}}}
train: {{epochs: 1, batch_size: 32}}
resources: {{cpus: 1}}
"""
FIRST_STEP = "sweep tiny.yaml --root ."
# A command, and the largest acceptable ratio for its users.
LIMITS = {
    "list --root .": 0.3,
    f"status {NAME} --root .": 0.3,
    f"best {NAME} --root .": 0.3,
    "schema": 0.5,
    "sweep --help": 0.5,
    "validate tiny.yaml": 1.3,
    "plan tiny.yaml --root .": 1.3,
    # ResNets need torchvision, whose import takes longer than torch's own.
    "plan tiny.yaml --root . --set=model.encoder=resnet18": 2.8,
    FIRST_STEP: 1.5,
}
# The first epoch has a single step and no probe. A second epoch exists, since the last is probed.
ONE_STEP = ("--set=train.epochs=2", "--set=train.batch_size=128", "--set=evaluate.every=2")
# Parts of a start. The first three end with a line of the sweep that contains the text.
PARTS = {
    "imports of the command": " starting",
    "labels, plan, images": " connecting to Ray",
    "Ray's start, the sweep's record": ": 1 trial of ",
    "Tune's loop, the trial's process, its imports and data": "",
    "first step": "",
}
BARE = """
import time
from pathlib import Path

import ray
from ray import tune

stamps = [time.time()] * 2
ray.init(log_to_driver=False)
stamps.append(time.time())


def train(config):
    import torch

    imported = time.time()
    layer = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    tune.report({"imported": imported, "stepped": time.time()})


config = tune.RunConfig(storage_path=str(Path.cwd() / "bare"))
found = tune.Tuner(train, run_config=config).fit()[0].metrics
print(*stamps, found["imported"], found["stepped"])
"""


def measure(rounds: int = 5, commands: Sequence[str] = tuple(LIMITS)) -> str:
    """Returns the table of all commands. The sweep to read takes most of a minute."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tiny.yaml").write_text(SPEC, encoding="utf-8")
        run = partial(_run, root)
        run((*PROGRAM, "sweep", "tiny.yaml", "--name", NAME, "--root", "."))
        ways: dict[str, Callable[[], object]] = {"import torch": partial(run, UNIT)}
        for each in commands:
            if each != FIRST_STEP:
                ways[each] = partial(run, (*PROGRAM, *each.split()))
        times = interleaved(ways, rounds)
        steps = first_steps(root, rounds) if FIRST_STEP in commands else None
    rows = [
        [f"`mtcon-ray {each}`", f"{ratio(times[each], times['import torch'])}", f"{LIMITS[each]:g}"]
        for each in ways
        if each in commands
    ]
    parts = ""
    if steps:
        ours, bare = (Times(tuple(map(sum, of_way))) for of_way in steps)
        title = f"`mtcon-ray sweep`, first step (1 is a Tune function's, {bare.median:.1f} s)"
        rows.append([title, f"{ratio(ours, bare)}", f"{LIMITS[FIRST_STEP]:g}"])
        parts = f"\n\n{_parts_table(*steps)}"
    unit = f"{times['import torch'].median:.1f} s"
    header = [f"time until the command ends (1 is `import torch`, {unit})", "ratio", "limit"]
    return markdown(header, rows) + parts


def first_steps(root: Path, rounds: int) -> tuple[list[Seconds], list[Seconds]]:
    """Returns the seconds of each of PARTS, of a sweep and of the bare function, in turns.

    A first round is for warm-up and not counted.
    """
    seconds: tuple[list[Seconds], list[Seconds]] = ([], [])
    for turn in range(rounds + 1):
        for of_way, way in zip(seconds, (_ends_of_sweep, _ends_of_bare), strict=True):
            times = [time.time(), *way(root, f"first-step-{turn}")]
            of_way.append(np.diff(times).tolist())
    ours, bare = (of_way[1:] for of_way in seconds)
    return ours, bare


def _parts_table(ours: list[Seconds], bare: list[Seconds]) -> str:
    medians = (map(median, zip(*of_way, strict=True)) for of_way in (ours, bare))
    rows = [[name, f"{a:.1f}", f"{b:.1f}"] for name, a, b in zip(PARTS, *medians, strict=True)]
    return markdown(["part of the time until the first step, s", "sweep", "Tune function"], rows)


def _ends_of_sweep(root: Path, name: str) -> Iterator[float]:
    """Runs a sweep and yields the Unix time of the end of each part, in seconds."""
    command = (*PROGRAM, *FIRST_STEP.split(), "--name", name, *ONE_STEP)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **_place(root)) as process:
        assert process.stdout is not None
        for mark in filter(None, PARTS.values()):
            next(line for line in process.stdout if mark in line)
            yield time.time()
        process.stdout.read()
    assert process.returncode == 0
    events = read_events(event_file(sweep_folder(root, name)))
    first = next(event for event in events if isinstance(event, Reported))
    yield first.time_ms / 1000 - (first.seconds or 0)
    yield first.time_ms / 1000


def _ends_of_bare(root: Path, name: str) -> Iterator[float]:
    """Runs the bare function and yields the Unix time of the end of each part, in seconds."""
    yield from map(float, _run(root, (sys.executable, "-c", BARE)).split()[-len(PARTS) :])


def _place(root: Path) -> dict[str, Any]:
    """Returns the options of a process in the root's folder.

    The first run of a command writes the bytecode, even if the environment forbids it or packages
    are installed without it. Missing bytecode would double all times except that of `import torch`.
    """
    environment = {
        **os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPYCACHEPREFIX": str(root / "bytecode"),
    }  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return {"cwd": root, "env": environment}


def _run(root: Path, command: Sequence[str]) -> str:
    """Runs a command in the root's folder and returns its output.

    Raises AssertionError if the command exits with another code than 0.
    """
    done: Any = subprocess.run(command, capture_output=True, text=True, **_place(root))
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)
