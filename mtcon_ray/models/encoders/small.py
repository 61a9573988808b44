"""A small residual network for training on CPUs, for images of 32 to 48 pixels.

Its blocks are not torchvision's, because importing torchvision doubles the start-up time of `plan`
and `sweep`.
"""

from torch import Tensor, nn

from mtcon_ray.models.encoders.base import Encoder, load_weights
from mtcon_ray.spec.encoders import SmallSpec

NUM_STAGES = 4


class Small(Encoder):
    """A stem and four stages of residual blocks with 1, 2, 4 and 8 times `width` channels.

    The stem and all stages but the first halve the sides: 40 x 40 pixels end as 3 x 3.
    """

    def __init__(self, spec: SmallSpec) -> None:
        super().__init__(spec)
        widths = [spec.width * 2**stage for stage in range(NUM_STAGES)]
        self.stem = conv_norm(3, spec.width, stride=2).append(nn.ReLU(inplace=True))
        self.stages = nn.Sequential()
        for before, width in zip([spec.width, *widths], widths, strict=False):
            more = (Block(width, width) for _ in range(spec.blocks - 1))
            self.stages.append(nn.Sequential(Block(before, width), *more))
        self.centre = nn.BatchNorm2d(widths[-1])
        self.width = widths[-1]
        draw_convolutions(self)
        load_weights(self, spec)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns features averaged over positions, [N, 8 * spec.width]."""
        h_NDHW: Tensor = self.stages(self.stem(x_NCHW))
        centred_ND11: Tensor = self.centre(h_NDHW.mean(dim=(2, 3), keepdim=True))
        return centred_ND11.flatten(1)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut around them: He et al. 2016, arXiv:1512.03385, figure 2.

    If a block doubles the channels, it halves the sides.
    """

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        stride = width // before
        self.conv1, self.bn1 = conv_norm(before, width, stride=stride)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv_norm(width, width)
        self.downsample = None if stride == 1 else conv_norm(before, width, kernel=1, stride=stride)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        h_NDHW: Tensor = self.relu(self.bn1(self.conv1(x_NCHW)))
        h_NDHW = self.bn2(self.conv2(h_NDHW))
        h_NDHW += x_NCHW if self.downsample is None else self.downsample(x_NCHW)
        activated_NDHW: Tensor = self.relu(h_NDHW)
        return activated_NDHW


def conv_norm(before: int, width: int, *, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Returns a convolution without bias, padded to keep the sides at stride 1, and batch norm."""
    conv = nn.Conv2d(before, width, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width))


def draw_convolutions(network: nn.Module) -> None:
    """Draws all convolutions: He et al. 2015, arXiv:1502.01852, by the number of outputs."""
    for module in network.modules():
        # On the meta device, where a plan counts parameters, normal_ imports torch's compiler.
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
