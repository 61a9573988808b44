"""Heads with batch norm: layers, standardised columns, stop-gradient of the projection."""

import torch

from mtcon_ray.models.heads import BatchNormProjector, SimSiamHead


def test_a_projector_ends_in_columns_of_mean_zero_and_variance_one() -> None:
    torch.manual_seed(0)
    z_ND = BatchNormProjector(5, dim=3, hidden=7)(torch.randn(64, 5))
    assert z_ND.shape == (64, 3)
    torch.testing.assert_close(z_ND.mean(dim=0), torch.zeros(3), rtol=0, atol=1e-6)
    torch.testing.assert_close(z_ND.var(dim=0, correction=0), torch.ones(3), rtol=1e-3, atol=1e-3)


def test_a_head_gives_prediction_and_projection_and_trains_by_the_first_alone() -> None:
    torch.manual_seed(0)
    head = SimSiamHead(5, dim=4, hidden=7, predictor_hidden=2)
    h_ND = torch.randn(8, 5)
    rows_ND = head(h_ND)
    prediction_ND, projection_ND = rows_ND.chunk(2, dim=1)
    assert rows_ND.shape == (8, 8)
    torch.testing.assert_close(head.projector(h_ND), projection_ND)
    torch.testing.assert_close(head.predictor(projection_ND), prediction_ND)
    (projection_ND * torch.randn(8, 4)).sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in head.parameters())
    (head(h_ND)[:, :4] * torch.randn(8, 4)).sum().backward()
    assert all(p.grad is not None for p in head.parameters())
