"""Distributed hyper-parameter sweeps for multi-task contrastive representation learning.

Entry points: `mtcon_ray.spec` (the specification of a run), `mtcon_ray.plan` (its resolved plan)
and `mtcon_ray.trainer` (one training in this process). The package itself imports no module.
"""

__version__ = "0.1.0"
