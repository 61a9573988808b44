"""The `evaluate` section."""

from pydantic import Field

from mtcon_ray.registry import Spec


class ShortProbeSpec(Spec):
    """The cheap validation probe that gives val/accuracy during training."""

    epochs: int = Field(8, ge=1, description="passes over the probe's training items")
    batch_size: int = Field(64, ge=1, description="items per step")
    lr: float = Field(0.1, gt=0, description="of SGD with momentum")
    max_items: int = Field(
        2048, ge=2, description="at most this many training and as many validation items"
    )


class ProbeSpec(Spec):
    """The linear probe of the reported accuracies (METHODS 12)."""

    epochs: int = Field(20, ge=1, description="passes over the training split")
    batch_size: int = Field(64, ge=1, description="items per step")
    lr: float = Field(0.1, gt=0, description="of SGD with momentum")
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(0.0, ge=0, description="of SGD")


class EvaluateSpec(Spec):
    """When and how the frozen encoder is probed."""

    every: int = Field(1, ge=1, description="epochs between validation probes; the last always")
    short_probe: ShortProbeSpec = ShortProbeSpec()
    probe: ProbeSpec = ProbeSpec()
    bootstrap: int = Field(1000, ge=10, le=1_000_000, description="resamples behind a deviation")
    batch_size: int = Field(256, ge=1, description="images per forward pass of the encoder")
