"""The networks of a spec, built to count their parameters and to check their weights."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

from mtcon_ray.base.metrics import HEAD
from mtcon_ray.errors import SpecError
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import Network, build_network
from mtcon_ray.spec.run_spec import RunSpec, with_values


def count_parameters(
    spec: RunSpec, built: list[RunSpec], sizes: Mapping[str, int], store: Path, *, extremes: bool
) -> list[int]:
    """Returns numbers of parameters of encoder and heads, the least and the greatest among them.

    `built` are the specs of the networks to build, at least one. Building checks that the encoder's
    weights fit. With `extremes` the networks with the least and greatest searched numbers are
    counted instead. Raises CheckpointError if weights do not fit, SpecError if an encoder refuses
    the views or a head of the objective is missing.
    """

    def count(one: RunSpec) -> int:
        with torch.device("meta"):  # allocates no memory and computes no initial weights
            method = METHODS[one.method.name](one.method, one.problem(sizes))
            network = build_network(one.model, method.make_network, one.seed, store=store)
            if one.model.encoder.is_checked_by_building:
                network.encoder.check_images(one.views.size)
        _check_heads(spec, network)
        return sum(p.numel() for p in network.parameters())

    counts = [count(one) for one in built]
    numbers = {
        path: [value for value in dimension.extremes if isinstance(value, int)]
        for path, dimension in spec.search.space.items()
        if path.startswith("model.") and extremes
    }
    found = []
    for end in (min, max):  # networks grow with each number
        values = {path: end(listed) for path, listed in numbers.items() if listed}
        # Values may be refused together. No trial has them then.
        with suppress(SpecError):
            found += [count(with_values(spec, {**values, "search": {}}))] if values else []
    return found or counts[:1]


def _check_heads(spec: RunSpec, network: Network) -> None:
    """Raises SpecError unless the network has each head in which the objective is measured."""
    labels, names = spec.labels, () if network.probed else network.names
    for metric, task in labels.shares:
        if metric.startswith(HEAD) and task not in names:
            own = [f"{metric}/{n}" for n in names if labels.kinds.get(n) == "classes"]
            raise SpecError(
                f"search.objective {metric} must be of tasks with a head, got {task!r}, which has "
                f"none of its own in method {spec.method.name}; name "
                f"{' or '.join([*own, metric.removeprefix(f'{HEAD}/')])}"
            )
