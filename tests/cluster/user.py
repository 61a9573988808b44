"""A user of a cluster, the user's sweep, and commands that are run to their end."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests import specs
from tests.waiting import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[2]
SPEC: dict[str, Any] = {
    **specs.SHORT,
    "name": "small",
    "train": {"epochs": 5000, "warmup_epochs": 0, "batch_size": 32},
    "evaluate": {"every": 100, "bootstrap": 20},
    "tracking": {"offline": True, "uri": "http://127.0.0.1:9"},
    "search": {**specs.GRID, "space": {"method.temperature": {"grid": [0.1]}}},
}
# An encoder of the user. Only commands with the user's consent can train it. It waits, since a
# trial that trains all the time would take the cores from the commands tested.
PLUGIN = """
import time
from typing import Literal
from mtcon_ray.models.encoders.base import ENCODERS
from mtcon_ray.models.encoders.small import Small

@ENCODERS.register("own")
class Own(Small):
    class Spec(Small.Spec):
        name: Literal["own"] = "own"

    def forward(self, x):
        time.sleep(0.3)
        return super().forward(x)
"""


class Ended(NamedTuple):
    """Exit code of a command, and all that it printed."""

    code: int
    printed: str


class User:
    """A user of a cluster, who runs the program in a folder like a checkout, with a spec."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        (folder / "mtcon_ray").symlink_to(REPOSITORY / "mtcon_ray")
        shutil.copytree(REPOSITORY / "experiments", folder / "experiments")
        (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
        self.folder = folder
        self.environment = {**environment, "PYTHONPATH": str(REPOSITORY)}

    def begin(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Starts a command of mtcon-ray in the background, with further environment variables."""
        return subprocess.Popen(
            [sys.executable, "-m", "mtcon_ray", *command],
            env={**self.environment, **variables}, cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *command: str) -> Ended:
        """Runs a command of mtcon-ray to its end."""
        return ended(self.begin(*command))


def ended(process: subprocess.Popen[str]) -> Ended:
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return Ended(process.returncode, output)
