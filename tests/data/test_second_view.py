"""Tests of the augmentations of a second view (`views.second`)."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.sampling import items
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.views import ViewParameters, draw_parameters
from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.spec.views import ViewsSpec
from mtcon_ray.training.batches import Batches
from mtcon_ray.training.distributed import ALONE, Ranks
from tests.data.test_views import RECIPE, SOURCE

CPU = torch.device("cpu")


def test_a_second_recipe_is_that_of_the_even_views_alone() -> None:
    """The second of three views is drawn as if its recipe held for all views, the others too."""
    own = {"crop_scale": (0.05, 0.1), "jitter": 0.0, "blur": 1.0, "solarise": 1.0}
    first = RECIPE.model_copy(update={"num_views": 3, "solarise": 0.0})
    both = ViewsSpec.model_validate({**first.model_dump(), "second": own})
    second = first.model_copy(update=own)
    drawn, of_first, of_second = (
        draw_parameters(33, SOURCE, spec, torch.Generator().manual_seed(8))
        for spec in (both, first, second)
    )
    for field in fields(ViewParameters):
        values_R, odd_R, even_R = (getattr(d, field.name) for d in (drawn, of_first, of_second))
        assert torch.equal(values_R[0::3], odd_R[0::3]), field.name
        assert torch.equal(values_R[2::3], odd_R[2::3]), field.name
        assert torch.equal(values_R[1::3], even_R[1::3]), field.name
    assert drawn.solarise_R.tolist() == [0, pytest.approx(0.6), 0] * 11


def test_a_second_recipe_without_fields_is_none() -> None:
    assert ViewsSpec.model_validate({"second": {}}).second_view is None
    changed = ViewsSpec.model_validate({"second": {"blur": 0.1}, "hue": 0.3}).second_view
    assert changed is not None
    assert (changed.blur, changed.hue) == (0.1, 0.3)


def test_second_views_are_the_same_on_several_workers_and_in_chunks(tmp_path: Path) -> None:
    """Only the second view of each image is solarised, here from the least value on."""
    spec = SOURCES["synthetic"].Spec.model_validate({"kind": "synthetic", "num_items": 20})
    dataset = open_dataset(spec, view_size=16, store=tmp_path)
    plain = {"size": 16, "mean": (0, 0, 0), "std": (1, 1, 1)}
    second = {"solarise": 1.0, "solarise_threshold": 1e-6}
    examples = items(dataset.table.rows("train"), 2)

    def views(spec: dict[str, object], ranks: Ranks) -> Tensor:
        given = parse_spec({"name": "second", "views": spec, "train": {"batch_size": 8}})
        make = Batches(dataset, examples, given, device=CPU, ranks=ranks)
        chunks, _ = make.chunks(1, size=3)
        return torch.cat([chunk() for chunk in chunks])

    whole_NCHW = views(plain, ALONE)
    parts = [views({**plain, "second": second}, Ranks(rank, 2)) for rank in range(2)]
    inverted_NCHW = torch.where(whole_NCHW < 1e-6, whole_NCHW, 1 - whole_NCHW)
    found_NCHW = torch.cat(parts)
    torch.testing.assert_close(found_NCHW[0::2], whole_NCHW[0::2])
    torch.testing.assert_close(found_NCHW[1::2], inverted_NCHW[1::2])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"second": {"blur": 0.1}, "method": "csn"}, "must be omitted where an image has one view"),
        (
            {"second": {"blur": 0.1}, "num_views": 1, "method": "xent"},
            "must be omitted where an image has one view",
        ),
        ({"second": {"size": 32}}, "views.second.size: unknown key"),
    ],
)
def test_a_second_view_that_cannot_be_made_is_refused(raw: dict[str, Any], message: str) -> None:
    method = raw.pop("method", "simclr")
    with pytest.raises(SpecError, match=message):
        parse_spec({"name": "x", "views": raw, "method": method})
