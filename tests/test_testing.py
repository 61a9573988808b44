"""All checks of `mtcon_ray.testing` on one method; tests/methods has the contract of each."""

from pathlib import Path

from mtcon_ray import testing
from tests.methods.cases import make_spec


def test_a_method_of_ours_passes_each_check(tmp_path: Path) -> None:
    spec, store = make_spec("mtcon"), tmp_path / "store"
    testing.check_spec(spec)
    testing.check_losses(testing.start(spec, store, tmp_path / "losses"))
    testing.check_order(testing.start(spec, store, tmp_path / "order"))
    testing.check_chunks(testing.start(spec, store, tmp_path / "chunks"))
    testing.check_falling(testing.start(spec, store, tmp_path / "falling"), lr=0.05)
    testing.check_batch_norm(testing.start(spec, store, tmp_path / "norm"))
    testing.check_resume(make_spec("mtcon", steps=5), store, tmp_path / "resume")
