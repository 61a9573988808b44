"""Distributed hyper-parameter sweeps for multi-task contrastive representation learning.

    import mtcon_ray as mt

    spec = mt.load_spec("spec.yaml", ["train.epochs=5"])
    print(mt.make_plan(spec))
    results = mt.run_sweep(spec)
    results.to_frame()

Importing the package imports nothing else: its functions come from `mtcon_ray.api` when they are
first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mtcon_ray.version import __version__ as __version__

if TYPE_CHECKING:
    from mtcon_ray.api import (
        PrintedPlan,
        TrainingResult,
        allow_plugins,
        load_encoder,
        load_results,
        load_spec,
        make_plan,
        run_sweep,
        run_training,
    )
    from mtcon_ray.records.results import SweepResults
    from mtcon_ray.spec.run_spec import RunSpec

__all__ = [
    "PrintedPlan", "RunSpec", "SweepResults", "TrainingResult", "allow_plugins", "load_encoder",
    "load_results", "load_spec", "make_plan", "run_sweep", "run_training",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("mtcon_ray.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
