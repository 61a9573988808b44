"""Base class of encoders with the model of another library."""

import torch
from torch import Tensor, nn

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.base import Encoder


class LibraryEncoder(Encoder):
    """The library's model is `net`, which maps [N, 3, H, W] to pooled features [N, width]."""

    net: nn.Module

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns pooled features, [N, width]."""
        h_ND: Tensor = self.net(x_NCHW)
        return h_ND

    def check_images(self, view_size: int) -> None:
        try:
            with torch.no_grad():
                self.eval()(torch.empty(2, 3, view_size, view_size))
        except NotImplementedError:
            return  # an operation without an implementation on the meta device
        # Libraries raise errors of many types for images of an unsuitable size.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SpecError(
                f"views.size must be a size of images that the encoder's model takes, got "
                f"{view_size}: {reason}; take another size or model"
            ) from error
