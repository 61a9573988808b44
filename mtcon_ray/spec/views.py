"""The `views` section: augmentations."""

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PositiveFloat, model_validator

from mtcon_ray.base.registry import Choice, Inside, NamedSpec, Share, Spec, Table

Range = tuple[float, float]
HalfTurn = Annotated[float, Field(ge=0, le=0.5)]
AUGMENTATIONS: Table[Any] = Table("augmentation")
AS_FIRST = Field(None, description="null: as in `views`")


class AugmentationSpec(Spec):
    """Base of the sections with augmentations. Their ranges must be ordered."""

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name, top in (("crop_scale", 1.0), ("crop_ratio", 100.0), ("blur_sigma", 100.0)):
            low, high = getattr(self, name) or (top, top)  # None: not given for the second view
            if not 0 < low <= high <= top:
                raise ValueError(f"{name} must have 0 < low <= high <= {top:g}, got {low}, {high}")
        return self


class SecondViewSpec(AugmentationSpec):
    """Augmentations of views 2, 4, 6, ..., where they differ from the first view."""

    crop_scale: Range | None = AS_FIRST
    crop_ratio: Range | None = AS_FIRST
    flip: Share | None = AS_FIRST
    jitter: Share | None = AS_FIRST
    brightness: Share | None = AS_FIRST
    contrast: Share | None = AS_FIRST
    saturation: Share | None = AS_FIRST
    hue: HalfTurn | None = AS_FIRST
    grayscale: Share | None = AS_FIRST
    blur: Share | None = AS_FIRST
    blur_sigma: Range | None = AS_FIRST
    solarise: Share | None = AS_FIRST
    solarise_threshold: Inside | None = AS_FIRST


class ExtraSpec(NamedSpec):
    """Base of plugins' augmentations. `num_draws` is the number of random numbers per view."""

    num_draws: ClassVar[int] = 0

    def __call__(self, x_RCHW: Any, draw_RK: Any) -> Any:
        """Returns the changed views of R rows, normalised, float32 [R, 3, size, size].

        draw_RK has `num_draws` numbers in [0, 1) per row, on the views' device. Other random
        numbers would differ between workers and after a resume.
        """
        raise NotImplementedError


class ViewsSpec(AugmentationSpec):
    """Augmentations for `num_views` views of an image (SupContrast, arXiv:2004.11362)."""

    size: int = Field(64, ge=8, le=1024, description="side of a view, pixels")
    num_views: int = Field(2, ge=1, le=16, description="augmented views of an image in a step")
    crop_scale: Range = Field((0.2, 1.0), description="random crop: range of its share of the area")
    crop_ratio: Range = Field((3 / 4, 4 / 3), description="random crop: range of width over height")
    flip: Share = Field(0.5, description="probability of a left-right flip")
    jitter: Share = Field(0.8, description="probability of the colour jitter")
    brightness: Share = Field(0.4, description="factor within 1 ± this")
    contrast: Share = Field(0.4, description="factor within 1 ± this")
    saturation: Share = Field(0.4, description="factor within 1 ± this")
    hue: HalfTurn = Field(0.1, description="shift within ± this share of the circle")
    grayscale: Share = Field(0.2, description="probability of losing all colour")
    blur: Share = Field(0.0, description="probability of a Gaussian blur")
    blur_sigma: Range = Field((0.1, 2.0), description="blur: sigma range, pixels")
    solarise: Share = Field(0.0, description="probability of inverting all bright channels")
    solarise_threshold: Inside = Field(0.5, description="solarise: inverts values from here to 1")
    mean: tuple[float, float, float] = Field(
        (0.485, 0.456, 0.406), description="subtracted from each channel, in [0, 1]"
    )
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = Field(
        (0.229, 0.224, 0.225), description="divides each channel, in [0, 1]"
    )
    second: SecondViewSpec = SecondViewSpec()
    extra: Annotated[ExtraSpec, Choice(AUGMENTATIONS)] | None = Field(
        None, description="a plugin's augmentation of the views, after all others. null: none"
    )

    @property
    def second_view(self) -> "ViewsSpec | None":
        """The augmentations of the second view, None if they are the same for all views."""
        own = self.second.model_dump(exclude_none=True)
        return self.model_copy(update=own) if own else None

    def check_second(self, views_per_image: int) -> None:
        """Raises ValueError for augmentations of a second view if images have a single view."""
        if views_per_image == 1 and self.second_view is not None:
            raise ValueError(
                "views.second must be omitted where an image has one view (views.num_views 1, or a "
                f"method that trains on triplets), got {self.second.model_dump(exclude_none=True)}"
            )
