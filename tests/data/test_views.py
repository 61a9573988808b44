"""Tests that views equal torchvision's for the same parameters, with the same distributions."""

from dataclasses import fields, replace
from functools import partial
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from mtcon_ray.data import resizing, views
from mtcon_ray.data.resizing import crop_by_taps
from mtcon_ray.data.views import ViewParameters, draw_parameters, evaluation_views, make_views
from mtcon_ray.spec.views import ViewsSpec

SIZE, SOURCE = 24, 40
PLAIN = ViewsSpec(size=SIZE, mean=(0, 0, 0), std=(1, 1, 1))
RECIPE = PLAIN.model_copy(update={"blur": 0.5, "solarise": 0.3, "solarise_threshold": 0.6})
# Crops of the whole image in its own colours.
WHOLE: dict[str, Any] = {"crop_scale": (1, 1), "crop_ratio": (1, 1), "jitter": 0, "grayscale": 0}
COLOUR = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)


def photographs(num_items: int, side: int = SOURCE, seed: int = 0) -> Tensor:
    """Returns smooth random images with grey, black and white squares, uint8 [N, S, S, 3]."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(num_items, 3, 5, 5, generator=generator)
    images = tv.resize(coarse, [side, side], antialias=True) * 1.4 - 0.2
    images += 0.1 * torch.rand(images.shape, generator=generator)
    images[:, :, :8, :8] = 0.5
    images[:, :, -8:, :8] = 0.0
    images[:, :, -8:, -8:] = 1.0
    images_NSSC: Tensor = (images.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    return images_NSSC.contiguous()


def drawn_by(spec: ViewsSpec, num_rows: int, seed: int) -> ViewParameters:
    return draw_parameters(num_rows, SOURCE, spec, torch.Generator().manual_seed(seed))


def none_drawn(num_rows: int) -> ViewParameters:
    """Returns parameters of views that show the whole image unchanged."""
    return drawn_by(ViewsSpec.model_validate({**WHOLE, "flip": 0}), num_rows, seed=0)


def by_torchvision(image: Tensor, parameters: ViewParameters, row: int, size: int) -> Tensor:
    """Returns one view [3, size, size] by torchvision's functions, before normalisation."""
    top, left, height, width = parameters.box_R4[row].tolist()
    x: Tensor = tv.to_dtype(image.permute(2, 0, 1), torch.float32, scale=True)
    x = tv.resized_crop(x, top, left, height, width, [size, size], antialias=True)
    x = tv.horizontal_flip(x) if parameters.flip_R[row] else x
    factors = parameters.factor_R4[row].tolist()
    for operation in parameters.order_R4[row].tolist():
        x = COLOUR[operation](x, factors[operation])
    x = tv.rgb_to_grayscale(x, 3) if parameters.grayscale_R[row] else x
    sigma, kernel = parameters.blur_R[row].item(), 2 * max(1, size // 20) + 1
    x = tv.gaussian_blur(x, [kernel] * 2, [sigma] * 2) if sigma > 0 else x
    threshold = parameters.solarise_R[row].item()
    return tv.solarize(x, threshold) if threshold > 0 else x


def assert_as_torchvision(images: Tensor, parameters: ViewParameters, spec: ViewsSpec) -> None:
    """Checks that every view is within 1e-5 of torchvision's."""
    views_RCHW = make_views(images, parameters, spec)
    num_views = len(views_RCHW) // len(images)
    for row, view_CHW in enumerate(views_RCHW):
        expected_CHW = by_torchvision(images[row // num_views], parameters, row, spec.size)
        torch.testing.assert_close(view_CHW, expected_CHW, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "box",
    [(0, 0, 40, 40), (3, 7, 24, 24), (10, 0, 30, 17), (0, 25, 9, 15), (39, 39, 1, 1)],
    ids=["whole", "own size", "smaller", "enlarged", "one pixel"],
)
@pytest.mark.parametrize("flip", [False, True])
def test_crop_and_flip(box: tuple[int, int, int, int], flip: bool) -> None:
    boxes_R4, flip_R = torch.tensor([box, box]), torch.tensor([flip, not flip])
    parameters = replace(none_drawn(2), box_R4=boxes_R4, flip_R=flip_R)
    assert_as_torchvision(photographs(2), parameters, PLAIN)


def test_crops_do_not_depend_on_how_many_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    images = photographs(6)
    parameters = drawn_by(RECIPE, 12, 3)
    order_R = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    crops = partial(crop_by_taps, images, parameters.box_R4, parameters.flip_R, SIZE, order_R)
    together_RCWH = crops()
    monkeypatch.setattr(resizing, "AT_WORK", 5 * 3 * SOURCE * SIZE // torch.get_num_threads())
    assert torch.equal(crops(), together_RCWH)


def test_every_strength_and_every_order_of_the_colour_operations() -> None:
    """All 24 orders agree with torchvision. They differ because the operations clamp."""
    orders = torch.tensor(list(permutations(range(4))))
    strong_R4 = torch.tensor([[1.6, 1.7, 1.8, 0.2]] * 24)
    alone_R4 = none_drawn(24).factor_R4
    for operation, most in enumerate((2, 2, 2, 0.5)):
        alone_R4[6 * operation : 6 * operation + 6, operation] = torch.linspace(0, most, 6)
    images = photographs(1)
    for factor_R4 in (strong_R4, alone_R4):
        parameters = replace(none_drawn(24), order_R4=orders, factor_R4=factor_R4)
        assert_as_torchvision(images, parameters, PLAIN)
    views_RCHW = make_views(images, replace(parameters, factor_R4=strong_R4), PLAIN)
    assert (torch.pdist(views_RCHW.flatten(1)) > 0.01).float().mean() > 0.9


@pytest.mark.parametrize(("size", "num_items"), [(24, 20), (64, 6)])
def test_whole_recipe_as_drawn(size: int, num_items: int) -> None:
    spec = RECIPE.model_copy(update={"size": size, "num_views": 3})
    assert_as_torchvision(photographs(num_items), drawn_by(spec, 3 * num_items, 1), spec)


def test_evaluation_is_resize_and_normalise() -> None:
    images, spec = photographs(3), ViewsSpec(size=SIZE)
    x_NCHW = tv.to_dtype(images.permute(0, 3, 1, 2), torch.float32, scale=True)
    x_NCHW = tv.resize(x_NCHW, [SIZE, SIZE], antialias=True)
    expected_NCHW = tv.normalize(x_NCHW, list(spec.mean), list(spec.std))
    torch.testing.assert_close(evaluation_views(images, spec), expected_NCHW, atol=1e-5, rtol=1e-5)


def test_examples_are_pictures_of_the_evaluated_image_and_its_views() -> None:
    images = photographs(2)
    spec = ViewsSpec.model_validate({**WHOLE, "size": SOURCE, "num_views": 2, "flip": 1})
    shown = views.example_views(images, spec, seed=0).reshape(2, SOURCE, 3, SOURCE, 3)
    assert (shown[:, :, 0] == images.numpy()).all()
    assert (shown[:, :, 1:] == images.flip(2).numpy()[:, :, None]).all()


def test_views_are_normalised_in_float32_channels_last() -> None:
    images, parameters = photographs(2), none_drawn(4)
    spec = ViewsSpec(size=SIZE)
    with torch.autocast("cpu", torch.bfloat16):
        views_RCHW = make_views(images, parameters, spec)
    plain_RCHW = make_views(images, parameters, PLAIN)
    expected_RCHW = tv.normalize(plain_RCHW, list(spec.mean), list(spec.std))
    torch.testing.assert_close(views_RCHW, expected_RCHW)
    assert views_RCHW.is_contiguous(memory_format=torch.channels_last)


def test_a_rank_makes_its_rows_of_the_global_batch() -> None:
    images = photographs(6)
    parameters = drawn_by(RECIPE, 12, 2)
    whole = make_views(images, parameters, RECIPE)
    for rows in (slice(4, 8), torch.arange(4, 8)):
        part = make_views(images[2:4], parameters.rows(rows), RECIPE)
        torch.testing.assert_close(part, whole[4:8], atol=1e-6, rtol=0)


def test_one_changed_field_moves_no_other_draw() -> None:
    changed = RECIPE.model_copy(update={"jitter": 0.0, "crop_ratio": (1.0, 1.0)})
    one, other = (drawn_by(spec, 64, 5) for spec in (RECIPE, changed))
    for name in ("flip_R", "order_R4", "grayscale_R", "blur_R", "solarise_R"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_the_draws_of_earlier_versions_repeat() -> None:
    """The numbers were drawn before views had solarisation and a second recipe."""
    drawn = drawn_by(ViewsSpec(blur=0.5, grayscale=0.5), 3, seed=7)
    assert drawn.box_R4.tolist() == [[11, 5, 26, 26], [7, 17, 20, 20], [1, 3, 39, 36]]
    assert drawn.flip_R.tolist() == [False, True, False]
    assert drawn.order_R4.tolist() == [[0, 3, 2, 1], [3, 2, 0, 1], [0, 1, 2, 3]]
    factors = [0.7251012921, 0.6688528061, 1.1452801228, -0.0362030491]
    assert drawn.factor_R4[1].tolist() == pytest.approx(factors)
    assert drawn.blur_R.tolist() == pytest.approx([1.9761108160, 0.6070653200, 0.0])


def test_a_second_recipe_is_that_of_the_even_views_alone() -> None:
    """The second of three views is drawn as if its recipe held for all views, the others too."""
    assert ViewsSpec.model_validate({"second": {}}).second_view is None
    own = {"crop_scale": (0.05, 0.1), "jitter": 0.0, "blur": 1.0, "solarise": 1.0}
    first = RECIPE.model_copy(update={"num_views": 3, "solarise": 0.0})
    both = ViewsSpec.model_validate({**first.model_dump(), "second": own})
    second = first.model_copy(update=own)
    drawn, of_first, of_second = (drawn_by(spec, 33, 8) for spec in (both, first, second))
    for field in fields(ViewParameters):
        values_R, odd_R, even_R = (getattr(d, field.name) for d in (drawn, of_first, of_second))
        for view, expected_R in enumerate((odd_R, even_R, odd_R)):
            assert torch.equal(values_R[view::3], expected_R[view::3]), field.name
    assert drawn.solarise_R.tolist() == [0, pytest.approx(0.6), 0] * 11


@pytest.mark.parametrize(
    ("scale", "ratio"),
    [
        ((0.2, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (1 / 3, 3.0)), ((0.5, 1.0), (1.9, 2.5)),
        ((0.9, 1.0), (0.2, 0.3)), ((0.9, 1.0), (3.0, 4.0)),
    ],
    ids=["default", "often refused", "wide", "never fits, narrow", "never fits, wide"],
)  # fmt: skip
def test_boxes_follow_torchvision(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    """Moments of sides and corners agree within 5 standard errors."""
    num_draws = 1500
    ours = drawn_by(ViewsSpec(crop_scale=scale, crop_ratio=ratio), num_draws, 6).box_R4
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        crop = v2.RandomResizedCrop(SIZE, scale=scale, ratio=ratio)
        draws = [crop.make_params([torch.empty(3, SOURCE, SOURCE)]) for _ in range(num_draws)]
    theirs = torch.tensor([[d["top"], d["left"], d["height"], d["width"]] for d in draws])
    assert ours.min() >= 0
    assert (ours[:, :2] + ours[:, 2:]).max() <= SOURCE
    for power in (1, 2):
        ours_R4, theirs_R4 = ours.double() ** power, theirs.double() ** power
        error_4 = ((ours_R4.var(dim=0) + theirs_R4.var(dim=0)) / num_draws).sqrt()
        assert ((ours_R4.mean(dim=0) - theirs_R4.mean(dim=0)).abs() <= 5 * error_4 + 1e-6).all()
