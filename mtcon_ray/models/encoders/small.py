"""A small residual network for training on CPUs, for images of 32 to 48 pixels."""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from mtcon_ray.models.encoders.base import ENCODERS, Encoder
from mtcon_ray.models.encoders.residual import Block, conv_norm, initialise, stage
from mtcon_ray.models.encoders.weights import WeightsSpec, load_weights

NUM_STAGES = 4


@ENCODERS.register("small")
class Small(Encoder):
    """A stem and four stages of residual blocks with 1, 2, 4 and 8 times `width` channels.

    The stem and all stages but the first halve the sides: 40 x 40 pixels end as 3 x 3.
    """

    class Spec(WeightsSpec):
        """A small residual network: 8 * width features."""

        name: Literal["small"] = "small"
        width: int = Field(32, ge=4, le=512, description="channels of the first stage")
        blocks: int = Field(1, ge=1, le=16, description="residual blocks in each of four stages")

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        widths = [spec.width * 2**stage for stage in range(NUM_STAGES)]
        self.stem = conv_norm(3, spec.width, kernel=3, stride=2).append(nn.ReLU(inplace=True))
        self.stages = nn.Sequential(
            *(
                stage(Block, before, width, num_blocks=spec.blocks, stride=width // before)
                for before, width in zip([spec.width, *widths], widths, strict=False)
            )
        )
        self.centre = nn.BatchNorm2d(widths[-1])
        self.width = widths[-1]
        initialise(self)
        load_weights(self, spec)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns features averaged over positions, [N, 8 * spec.width]."""
        h_NDHW: Tensor = self.stages(self.stem(x_NCHW))
        centred_ND11: Tensor = self.centre(h_NDHW.mean(dim=(2, 3), keepdim=True))
        return centred_ND11.flatten(1)
