"""Residual blocks: He et al. 2016, arXiv:1512.03385, figures 2 and 5.

Layers have the names of torchvision's, so its weights fit. torchvision's own blocks are not used:
it imports torch's compiler, which doubles the start-up time of every command that builds a network.
"""

from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    widening = 1

    def __init__(self, before: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv_norm(before, width, kernel=3, stride=stride)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv_norm(width, width, kernel=3)
        self.downsample = _shortcut(before, width, stride)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        h_NDHW: Tensor = self.relu(self.bn1(self.conv1(x_NCHW)))
        h_NDHW = self.bn2(self.conv2(h_NDHW))
        h_NDHW += x_NCHW if self.downsample is None else self.downsample(x_NCHW)
        activated_NDHW: Tensor = self.relu(h_NDHW)
        return activated_NDHW


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, the second of which widens four times.

    The 3x3 convolution has the stride, as in torchvision; in the paper the first one has it.
    """

    widening = 4

    def __init__(self, before: int, width: int, *, stride: int = 1) -> None:
        super().__init__()
        after = width * self.widening
        self.conv1, self.bn1 = conv_norm(before, width, kernel=1)
        self.conv2, self.bn2 = conv_norm(width, width, kernel=3, stride=stride)
        self.conv3, self.bn3 = conv_norm(width, after, kernel=1)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(before, after, stride)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        h_NDHW: Tensor = self.relu(self.bn1(self.conv1(x_NCHW)))
        h_NDHW = self.relu(self.bn2(self.conv2(h_NDHW)))
        h_NDHW = self.bn3(self.conv3(h_NDHW))
        h_NDHW += x_NCHW if self.downsample is None else self.downsample(x_NCHW)
        activated_NDHW: Tensor = self.relu(h_NDHW)
        return activated_NDHW


def stage(
    block: type[Block | Bottleneck], before: int, width: int, *, num_blocks: int, stride: int
) -> nn.Sequential:
    """Returns blocks of one width; the first has the stride."""
    first = block(before, width, stride=stride)
    after = width * block.widening
    return nn.Sequential(first, *(block(after, width) for _ in range(num_blocks - 1)))


def conv_norm(before: int, width: int, *, kernel: int, stride: int = 1) -> nn.Sequential:
    """Returns a convolution without bias that keeps the sides at stride 1, and its batch norm."""
    conv = nn.Conv2d(before, width, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(width))


def initialise(network: nn.Module) -> None:
    """Draws all convolutions: He et al. 2015, arXiv:1502.01852, by the number of outputs."""
    for module in network.modules():
        # On the meta device, where a plan counts parameters, normal_ imports torch's compiler.
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _shortcut(before: int, after: int, stride: int) -> nn.Sequential | None:
    if before == after and stride == 1:
        return None
    return conv_norm(before, after, kernel=1, stride=stride)
