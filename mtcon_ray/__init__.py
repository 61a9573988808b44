"""Distributed hyper-parameter sweeps for multi-task contrastive representation learning.

Start at `mtcon_ray.spec` (what a run is), `mtcon_ray.plan` (what it will do) and
`mtcon_ray.run` (one training in this process). Importing the package alone loads nothing else.
"""

__version__ = "0.1.0"
