"""Base class of encoders with the model of another library."""

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.base import Encoder, SpecT
from mtcon_ray.models.encoders.weights import FETCHED_FILE, State, keep, kept, write_state
from mtcon_ray.spec.encoders import PublishedSpec


def build(make: Callable[[], Any]) -> Any:
    """Returns the model built by `make`, on torch's default device.

    Some models, such as RegNet, read tensors while they are built. The meta device does not allow
    this, so these models are built on the CPU and moved.
    """
    try:
        return make()
    except NotImplementedError:
        with torch.device("cpu"):
            model = make()
        return model.to(torch.get_default_device())


class LibraryEncoder(Encoder):
    """The library's model is `net`, which maps [N, 3, H, W] to pooled features [N, width]."""

    net: nn.Module

    @classmethod
    @abstractmethod
    def download(cls, spec: Any) -> State:
        """Returns the parameters named by `spec.weights`, by the keys of files.

        Reads the library's own cache where it has them. Raises SpecError if the download fails.
        """

    @classmethod
    def fetch_weights(cls, spec: Any, store: Path) -> None:
        if spec.weights is not None and spec.is_name(spec.weights):
            keep(store, spec.source, lambda folder: write_state(cls.download(spec), folder))

    @classmethod
    def with_fetched(cls, spec: SpecT, store: Path) -> SpecT:
        assert isinstance(spec, PublishedSpec)
        if spec.weights is None or not spec.is_name(spec.weights):
            return spec
        path = kept(store, spec.source) / FETCHED_FILE
        return spec.model_copy(update={"weights": str(path)}) if path.exists() else spec

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns pooled features, [N, width]."""
        h_ND: Tensor = self.net(x_NCHW)
        return h_ND

    def check_images(self, view_size: int) -> None:
        was_training = self.training
        try:
            with torch.no_grad():
                shape = self.eval()(torch.empty(2, 3, view_size, view_size)).shape
        except NotImplementedError:
            return  # an operation without an implementation on the meta device
        # Libraries raise errors of many types for images of an unsuitable size.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SpecError(
                f"views.size must be a size of images that the encoder's model takes, got "
                f"{view_size}: {reason}; take another size or model"
            ) from error
        finally:
            self.train(was_training)
        if shape != (2, self.width):
            raise SpecError(
                f"model.encoder.model must return pooled features [N, {self.width}], got "
                f"{list(shape)} for two images; take another model"
            )
