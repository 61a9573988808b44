"""Sections of specs that are trained in seconds. A test adds or replaces what it is about."""

from typing import Any

# A sweep of some trials, each of some seconds.
SHORT: dict[str, Any] = {
    "data": {"kind": "synthetic", "num_items": 300},
    "views": {"size": 16},
    "model": {"encoder": {"name": "small", "width": 8}},
    "train": {"epochs": 4, "batch_size": 32},
    "evaluate": {"bootstrap": 20},
    "tracking": {"offline": True},
}
# One training of two epochs, in less than a second.
TINY: dict[str, Any] = {
    **SHORT,
    "data": {"kind": "synthetic", "num_items": 120},
    "model": {"encoder": {"name": "small", "width": 4}, "head_dim": 8},
    "train": {"epochs": 2, "batch_size": 16},
}
GRID: dict[str, Any] = {"sampler": "grid", "scheduler": {"name": "none"}}
