"""The spec that `init` writes, changed as a first user would change it."""

from pathlib import Path

import pytest
from PIL import Image

from mtcon_ray.cli.guessing import guess
from mtcon_ray.cli.new_spec import spec_text, write_new
from mtcon_ray.plan import ClusterView, NodeKind, make_plan
from mtcon_ray.spec import load_spec

ANYWHERE = ClusterView("any cluster", (NodeKind("any node", 2, 0, None),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A new spec of 100 pictures."""
    (tmp_path / "images").mkdir()
    rows = [f"{i}.png,{'red' if i % 2 else 'blue'}" for i in range(100)]
    for i in range(100):
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / f"{i}.png")
    (tmp_path / "labels.csv").write_text("\n".join(["image,colour", *rows]) + "\n")
    write_new(
        tmp_path / "spec.yaml", spec_text(guess(tmp_path / "labels.csv", tmp_path / "images"))
    )
    return tmp_path / "spec.yaml"


@pytest.mark.parametrize("settings", [(), ("search.repeats=3",), ("search.scheduler=null",)])
@pytest.mark.parametrize("with_search", [True, False])
def test_it_can_be_trained_for_a_single_epoch(
    path: Path, settings: tuple[str, ...], with_search: bool
) -> None:
    small = ["train.epochs=1", "train.batch_size=8"]
    spec = load_spec(path, [*small, *settings], with_search=with_search)
    plan = make_plan(spec, path.parent, ANYWHERE)
    assert (plan.epochs, plan.rung_epochs) == (1, ())
