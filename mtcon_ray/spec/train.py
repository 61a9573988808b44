"""The `train` section."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mtcon_ray.base.registry import BelowOne, Choice, Count, Inside, Positive, Share, Spec
from mtcon_ray.spec import optimizers as kinds


class TrainSpec(Spec):
    """Length, batches, learning rate and precision of a training."""

    epochs: int = Field(20, ge=1, le=100_000, description="passes over the training split")
    patience: Count | None = Field(
        None,
        description="epochs without a new best validation value after which a training ends. null: "
        "never. The learning rate is scheduled for all epochs",
    )
    warmup_epochs: float | None = Field(
        None,
        ge=0,
        description="linear rise of the rate, in epochs. null: 1, but 0 if epochs is 1 or the "
        "schedule is one_cycle",
    )
    batch_size: int = Field(64, ge=2, description="examples per step, over all workers")
    chunk_size: Count | None = Field(
        None,
        description="gradient caching: examples per worker in the network at a time, for a batch "
        "larger than memory. null: all. With batch norm model.batch_norm must be local",
    )
    lr: float = Field(0.2, gt=0, le=1000, description="peak learning rate, after warm-up")
    lr_scaling: Literal["none", "linear", "sqrt"] = Field(
        "none", description="scale lr with batch_size / 256: not, linearly, by the square root"
    )
    lr_schedule: Annotated[kinds.ScheduleSpec, Choice(kinds.SCHEDULES, "cosine")] = (
        kinds.CosineSpec()
    )
    lr_final: Share = Field(0.001, description="the schedule ends at this share of the peak rate")
    optimizer: Annotated[kinds.OptimizerSpec, Choice(kinds.OPTIMIZERS, "sgd")] = kinds.SGDSpec()
    ema: Inside | None = Field(
        None,
        description="probe, keep and export the exponential moving average of the network, "
        "ema * average + (1 - ema) * network after each step. null: the network",
    )
    momentum: BelowOne = Field(0.9, description="of SGD and LARS, of Adam's first moment")
    weight_decay: Share = Field(
        1e-4,
        description="of the network's weights. Biases, norms and a method's own have none",
    )
    max_grad_norm: Positive | None = Field(None, description="clip the gradient. null: no")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="auto: bfloat16 autocast if the device computes it fast, else float32. "
        "float16: for GPUs without bfloat16, the loss is scaled",
    )
    compile: Literal["none", "graphs"] = Field(
        "none",
        description="graphs: on one GPU each step is a CUDA graph, several times as fast with "
        "small images and batches. Where a graph is impossible, trains as with none and logs it",
    )
    checkpoint_seconds: float | None = Field(
        None,
        ge=0,
        le=86_400,
        description="seconds of training between two checkpoints, at most this much is trained "
        "again after a kill. null: 30, or 300 if the root is a URL. Longer if saving would take "
        "more than 5 % of the time",
    )

    @property
    def warmup(self) -> float:
        """Epochs of warm-up: `warmup_epochs`, or its default if it is omitted."""
        default = min(1, self.epochs - 1) if self.lr_schedule.warms_up else 0
        return default if self.warmup_epochs is None else self.warmup_epochs

    def is_plateau(self, epochs: int) -> bool:
        """Returns True if so many epochs without a new best value are enough to end a training."""
        return self.patience is not None and epochs >= self.patience

    @model_validator(mode="after")
    def _warmup_ends(self) -> Self:
        if self.warmup >= self.epochs:
            raise ValueError(f"warmup_epochs must be below epochs {self.epochs}, got {self.warmup}")
        if self.lr_schedule.name == "exponential" and self.lr_final == 0:
            raise ValueError("lr_final must be positive for an exponential schedule, got 0")
        if getattr(self.optimizer, "nesterov", False) and self.momentum == 0:
            raise ValueError("momentum must be positive with optimizer.nesterov, got 0")
        return self
