"""The `data` section: fields common to several kinds of data, and the table of all kinds."""

from collections import Counter
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator

from mtcon_ray.base.metrics import Kind
from mtcon_ray.base.registry import URL, BelowOne, Seed, Share, Spec, Table

SOURCES: Table[Any] = Table("kind of data", "kind")
Split = Literal["train", "val", "test"]
# Ways to make an image square, described in `decode_image`.
Resize = Literal["squash", "crop", "pad"]
SPLIT_FRACTIONS = (0.7, 0.1, 0.2)  # shares of train, val and test in a random split
MAX_LABELS = 1_000  # columns in a list of a spec
Label = TypeVar("Label", bound=str)
Columns = Annotated[tuple[Label, ...], Field(max_length=MAX_LABELS)]
HeldOut = Annotated[Columns[Label], Field(description="labels never trained on, probed at the end")]


class DataSpec(Spec):
    """Spec fields common to all kinds of data. Each kind adds its own fields."""

    kind: str = ""
    tasks: Columns[str] = Field(description="labels to train on, classes or label sets ([]: none)")
    held_out: HeldOut[str] = ()
    seed: Seed = Field(0, description="of splits, label noise and synthetic images in all repeats")
    held_out_top_k: int | None = Field(
        None, ge=2, description="keep the k most frequent held-out classes (others become missing)"
    )
    label_noise: dict[str, Share] = Field(
        {}, description="task to the share of its train labels replaced by random classes"
    )
    fraction: float = Field(1.0, gt=0, le=1, description="share of the train split (whole groups)")
    store_size: int | None = Field(
        None,
        ge=8,
        le=2048,
        description="side of cached images, pixels (null: 1.25 x views.size, at most the size of "
        "the images if it is fixed)",
    )
    # The side of the images in pixels if it is fixed, else None.
    native_size: ClassVar[int | None] = None
    # The names of label sets. All other labels are classes.
    sets: ClassVar[tuple[str, ...]] = ()

    def kind_of(self, name: str) -> Kind:
        """Returns the kind of a task's or held-out column's labels; "classes" by default."""
        return "set" if name in self.sets else "classes"

    def urls(self) -> dict[str, str]:
        """Returns the URLs of object stores in the spec, by field."""
        return {name: v for name, v in self if isinstance(v, str) and URL.match(v)}

    @model_validator(mode="after")
    def _labels_are_consistent(self) -> Self:
        columns = Counter([*self.tasks, *self.held_out])
        if twice := sorted(column for column, count in columns.items() if count > 1):
            raise ValueError(f"tasks and held_out must not repeat a column, got {twice} twice")
        for task in self.label_noise:
            if task not in self.tasks or self.kind_of(task) != "classes":
                raise ValueError(
                    f"label_noise must name tasks with classes, got {task!r}; tasks: {self.tasks}"
                )
        kinds = {self.kind_of(column) for column in self.held_out}
        if self.held_out_top_k is not None and kinds == {"set"}:
            raise ValueError(
                "held_out_top_k must go with a held-out column of classes, got "
                f"{self.held_out_top_k} with label sets alone; leave it out"
            )
        return self


class FilesSpec(DataSpec):
    """Spec fields common to all kinds of data with images as files."""

    resize: Resize = Field("squash", description="to a square: squash, crop the middle, pad white")
    max_bad_images: BelowOne = Field(0.01, description="tolerated share of missing or bad images")


class DrawnSplitSpec(FilesSpec):
    """Spec fields common to all kinds of data with optional random splits."""

    split_fractions: tuple[float, float, float] = Field(
        SPLIT_FRACTIONS, description="shares of train, val and test in a random split"
    )

    @model_validator(mode="after")
    def _shares_are_whole(self) -> Self:
        shares = self.split_fractions
        if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"split_fractions must be positive and sum to 1, got {shares}")
        return self
