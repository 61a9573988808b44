"""ResNet-18 and ResNet-50 of torchvision without classifier, also with a stem for small images.

torchvision is imported where a network is built, because the import takes seconds.
"""

import torch
from torch import nn

from mtcon_ray.models.encoders.base import load_weights
from mtcon_ray.models.encoders.small import draw_convolutions
from mtcon_ray.models.encoders.torchvision import TorchvisionEncoder, published
from mtcon_ray.spec.encoders import ResNet18Spec, ResNetSpec


class _ResNet(TorchvisionEncoder):
    def __init__(self, spec: ResNetSpec) -> None:
        super().__init__(spec)
        device = torch.get_default_device()
        # On the meta device no weights are drawn, so removed layers do not change a seed's weights.
        with torch.device("meta"):
            net = published().get_model(spec.name)
            if spec.stem == "small":
                net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        self.width, self.left_out = net.fc.in_features, ("fc.",)
        net.fc = nn.Identity()
        if isinstance(spec, ResNet18Spec) and spec.stages == 3:
            self.width, self.left_out = 256, ("fc.", "layer4.")
            net.layer4 = nn.Identity()
        self.net = net.to_empty(device=device)
        for module in net.modules():
            # This draws convolutions too. Without it, the weights of every seed would change.
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
                module.reset_parameters()
        draw_convolutions(net)
        load_weights(self, spec)


class ResNet18(_ResNet):
    """ResNet-18 with 512 features, or 256 after three stages: He et al. 2016, arXiv:1512.03385."""


class ResNet50(_ResNet):
    """ResNet-50 with 2048 features: He et al. 2016, arXiv:1512.03385."""
