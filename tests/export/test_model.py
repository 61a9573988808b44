"""Tests that the exported module equals the evaluation, for images of any size."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.export import Dim

from mtcon_ray.data.decoding import decode_image
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.export.model import ExportedModel, Head, StoredResize
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.data.base import Resize
from mtcon_ray.spec.run_spec import parse_spec
from tests.data.test_decoding import encoded


@pytest.mark.parametrize("resize", ["squash", "crop", "pad"])
@pytest.mark.parametrize(
    ("height", "width", "size"),
    [(50, 40, 50), (37, 61, 40), (500, 333, 80), (20, 13, 80), (1, 90, 16), (301, 203, 37)],
)
def test_pictures_are_square_as_stored(height: int, width: int, size: int, resize: Resize) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    ours = StoredResize(size, resize)(torch.from_numpy(pixels)[None])[0]
    stored = decode_image(encoded(Image.fromarray(pixels)), size, resize)
    assert np.array_equal(ours.numpy(), stored)


@pytest.mark.slow
@pytest.mark.parametrize("resize", ["crop", "pad"])
def test_exported_pictures_of_any_size_become_square(resize: Resize) -> None:
    """A program of torch.export with dynamic sides accepts portraits and landscapes."""
    model = StoredResize(24, resize)
    sides = {0: Dim("N", min=1, max=99), 1: Dim("H", min=1, max=999), 2: Dim("W", min=1, max=999)}
    example = torch.zeros(2, 27, 29, 3, dtype=torch.uint8)
    exported = torch.export.export(model, (example,), dynamic_shapes=(sides,)).module()
    for height, width in ((40, 24), (31, 90), (1, 1), (24, 24), (500, 7)):
        images = torch.randint(0, 256, (3, height, width, 3), dtype=torch.uint8)
        assert torch.equal(exported(images), model(images))


@pytest.mark.parametrize("dim", [None, 6])
@pytest.mark.parametrize(
    ("encoder", "method"),
    [
        ({"name": "small", "width": 4}, {"name": "mtcon"}),
        ({"name": "resnet18"}, {"name": "moco"}),
        ({"name": "vit"}, {"name": "can"}),
        ({"name": "small", "width": 4}, {"name": "csn"}),
    ],
    ids=str,
)
def test_what_is_probed_is_embedded(encoder: Any, method: Any, dim: int | None) -> None:
    """The encoder's last layer may be an embedding of `dim` numbers, which the heads see too."""
    sections = {"model": {"encoder": encoder, "embedding_dim": dim}, "method": method}
    spec = parse_spec({"name": "a", "views": {"size": 32}, **sections})
    made = METHODS[spec.method.name](spec.method, spec.problem(dict.fromkeys(spec.data.tasks, 3)))
    network = build_network(spec.model, made.make_network, 0)
    torch.stack([z.sum() for z in network(torch.randn(4, 3, 32, 32)).values()]).sum().backward()
    assert all(p.grad is not None for p in network.encoder.parameters())
    images = np.random.default_rng(0).integers(0, 256, (6, 40, 40, 3), dtype=np.uint8)
    given = network, images, np.arange(6), spec.views
    expected = extract_features(*given, batch_size=4, device=torch.device("cpu"))
    width = expected.shape[1]
    heads = {"a label": Head(torch.randn(width, 3), torch.randn(3), is_set=False)}
    model = ExportedModel(network, heads, spec).eval()
    with torch.inference_mode():
        found = model(torch.from_numpy(images))
    assert network.probed or width == (dim or network.encoder.width)
    torch.testing.assert_close(found["embedding"], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found["labels"]["a label"].sum(dim=1), torch.ones(6))
