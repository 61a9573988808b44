"""Steps in float16: the loss is scaled, and steps whose gradient overflows are skipped."""

import math

import pytest
import torch

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.errors import DivergedError
from mtcon_ray.training.step import update
from tests.training.learners import batches, learner, snapshot


def test_a_scaled_loss_moves_parameters_as_far_as_without(dataset: Dataset) -> None:
    torch.set_num_threads(1)  # float16 rounds by the number of threads, which other tests set
    x_NCHW, batch = batches(dataset)(0)
    exact, scaled = learner(), learner(autocast=torch.float16)
    scaled.scaler.load_state_dict({**scaled.scaler.state_dict(), "scale": 2.0**8})
    before = snapshot(exact.network)
    for one in (exact, scaled):
        update(one, x_NCHW, batch, lr=0.1, step=0, num_steps=9)
        one.check()
    moved, found = snapshot(exact.network), snapshot(scaled.network)
    far = torch.cat([(moved[n] - before[n]).flatten() for n in before])
    off = torch.cat([(found[n] - moved[n]).flatten() for n in before])
    assert off.norm() < 0.05 * far.norm()


def test_a_gradient_that_overflows_is_skipped_and_the_scale_halved(dataset: Dataset) -> None:
    """Until it does not overflow any more; at a scale that is not the cause, training ends."""
    make, one = batches(dataset), learner(autocast=torch.float16)
    scaler = one.scaler
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**30})
    before = snapshot(one.network)
    update(one, *make(0), lr=0.1, step=0, num_steps=99)
    one.check()
    assert scaler.get_scale() == 2.0**29
    assert all(torch.equal(value, before[n]) for n, value in snapshot(one.network).items())
    for step in range(1, 25):
        update(one, *make(step), lr=0.1, step=step, num_steps=99)
    one.check()
    assert 1 < scaler.get_scale() < 2.0**29
    assert any(not torch.equal(value, before[n]) for n, value in snapshot(one.network).items())
    scaler.update(5e-5)
    with pytest.raises(DivergedError, match="got an overflow at every scale down to 5e-05"):
        one.check()


def test_a_loss_that_is_not_finite_is_divergence_with_a_scaler_too(dataset: Dataset) -> None:
    make, one = batches(dataset), learner(autocast=torch.float16)
    with torch.no_grad():
        next(one.network.encoder.parameters()).fill_(math.nan)
    before = snapshot(one.method)
    update(one, *make(0), lr=0.1, step=0, num_steps=99)
    assert all(torch.equal(value, before[n]) for n, value in snapshot(one.method).items())
    with pytest.raises(DivergedError, match="at step 1;"):
        one.check()
