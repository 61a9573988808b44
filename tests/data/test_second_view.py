"""Tests of the augmentations of a second view (`views.second`)."""

from dataclasses import fields
from typing import Any

import pytest
import torch

from mtcon_ray.data.views import ViewParameters
from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.spec.views import ViewsSpec
from tests.data.test_views import RECIPE, drawn_by


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
        assert torch.equal(values_R[0::3], odd_R[0::3]), field.name
        assert torch.equal(values_R[2::3], odd_R[2::3]), field.name
        assert torch.equal(values_R[1::3], even_R[1::3]), field.name
    assert drawn.solarise_R.tolist() == [0, pytest.approx(0.6), 0] * 11


ONE_VIEW = "must be omitted where an image has one view"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"second": {"blur": 0.1}, "method": "csn"}, ONE_VIEW),
        ({"second": {"blur": 0.1}, "num_views": 1, "method": "xent"}, ONE_VIEW),
        ({"second": {"size": 32}}, "views.second.size: unknown key"),
    ],
)
def test_a_second_view_that_cannot_be_made_is_refused(raw: dict[str, Any], message: str) -> None:
    method = raw.pop("method", "simclr")
    with pytest.raises(SpecError, match=message):
        parse_spec({"name": "x", "views": raw, "method": method})
