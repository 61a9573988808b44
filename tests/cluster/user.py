"""The spec and the plugin of a user of a cluster."""

from typing import Any

from tests import specs

SPEC: dict[str, Any] = {
    **specs.SHORT,
    "name": "small",
    "train": {"epochs": 5000, "warmup_epochs": 0, "batch_size": 32, "checkpoint_seconds": 1},
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
