"""Time until a command answers, in units of `python -c "import torch"` on the same machine.

Each command is a process of its own, and all packages have bytecode, as once they have been used.
The root holds one finished sweep of one tiny trial.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.table import markdown
from benchmarks.timing import interleaved, ratio

UNIT = (sys.executable, "-c", "import torch")
PROGRAM = (sys.executable, "-m", "mtcon_ray")
NAME = "tiny"
SPEC = f"""name: {NAME}
data: {{kind: synthetic, num_items: 300, tasks: [shape], held_out: []}}
views: {{size: 16}}
train: {{epochs: 1, batch_size: 32}}
"""
TINY = ("--set=model.encoder={name: small, width: 4}", "--set=resources.cpus=1")
# A command, and the largest ratio that its users should see.
LIMITS = {
    "list --root .": 0.3,
    f"status {NAME} --root .": 0.3,
    f"best {NAME} --root .": 0.3,
    "schema": 0.5,
    "sweep --help": 0.5,
    "validate tiny.yaml": 1.3,
    "plan tiny.yaml --root .": 1.3,
}


def measure(rounds: int = 5, commands: Sequence[str] = tuple(LIMITS)) -> str:
    """Returns the table of all commands; the sweep that they read takes most of a minute."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tiny.yaml").write_text(SPEC, encoding="utf-8")
        run = partial(_run, root)
        run((*PROGRAM, "sweep", "tiny.yaml", "--name", NAME, "--root", ".", *TINY))
        ways: dict[str, Callable[[], object]] = {"import torch": partial(run, UNIT)}
        ways |= {each: partial(run, (*PROGRAM, *each.split())) for each in commands}
        times = interleaved(ways, rounds)
    rows = [
        [f"`mtcon-ray {each}`", f"{ratio(times[each], times['import torch'])}", f"{LIMITS[each]:g}"]
        for each in commands
    ]
    unit = f"{times['import torch'].median:.1f} s"
    header = [f"time until the command ends (1 is `import torch`, {unit})", "ratio", "limit"]
    return markdown(header, rows)


def _run(root: Path, command: Sequence[str]) -> None:
    """Runs a command in the root's folder; raises CalledProcessError if it fails.

    The first run of a command writes the bytecode: also where the environment forbids it, or some
    packages were installed without, which would double the time of all commands but `import torch`.
    """
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(root / "bytecode")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(command, cwd=root, env=environ, check=True, capture_output=True)
