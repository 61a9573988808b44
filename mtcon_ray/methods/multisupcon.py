"""MultiSupCon: positives have overlapping label sets. A single head with a fixed temperature.

Zaigrajew and Zieba, code at github.com/WolodjaZ/MultiSupContrast.
"""

import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.positives import LabelSets, Relation
from mtcon_ray.methods.base import ContrastiveMethod
from mtcon_ray.spec.methods.supervised import MultiSupConSpec
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT


class MultiSupCon(ContrastiveMethod):
    """Positives have a Jaccard overlap of at least `threshold` and are weighted by the overlap.

    At threshold 1 positives have equal label sets, as in SupCon.
    """

    spec: MultiSupConSpec

    def name_heads(self) -> tuple[str, ...]:
        if self.spec.sets_from == "classes":
            return ("classes",)
        return (self.spec.task or self.problem.of_kind("set")[0],)

    def relation(self, head: str, batch: Batch) -> Relation:
        of_classes = self.spec.sets_from == "classes"
        sets_BL = self._sets_of_classes(batch) if of_classes else batch.label_sets[head]
        return LabelSets(sets_BL, threshold=self.spec.threshold)

    def _sets_of_classes(self, batch: Batch) -> Tensor:
        """Returns each item's classes in all tasks as a label set, uint8 [B, sum of classes].

        The bits of a task are unknown if the item's class is unknown.
        """
        bits = []
        for task in self.problem.of_kind("classes"):
            class_B1 = batch.labels[task][:, None]
            # Not one_hot: it reads the values on the device.
            each_C = torch.arange(self.problem.sizes[task], device=class_B1.device)
            bits_BC = (class_B1 == each_C).to(torch.uint8)
            bits.append(bits_BC.where(class_B1 != MISSING, UNKNOWN_BIT))
        return torch.cat(bits, dim=1)
