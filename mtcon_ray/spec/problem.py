"""Tasks and dimensions of a training, as a method needs them before any label is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mtcon_ray.base.metrics import Kind

# Codes of unknown labels: of a class, and of a bit of a label set, which is uint8.
MISSING = -1
UNKNOWN_BIT = 255


@dataclass(frozen=True)
class Problem:
    """Tasks and dimensions from which a method is constructed.

    kinds maps each task to its kind, in the order of the tasks. sizes maps each task to its
    number of classes or of labels in a set. sizes is empty when a spec is validated before any
    label is read. encoder is the encoder's name.
    """

    kinds: Mapping[str, Kind]
    batch_size: int
    num_views: int
    head_dim: int
    head_hidden: int | None
    encoder: str
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in order."""
        return tuple(self.kinds)

    def of_kind(self, kind: Kind) -> tuple[str, ...]:
        """Returns the names of the tasks of a kind, in order."""
        return tuple(task for task, k in self.kinds.items() if k == kind)
