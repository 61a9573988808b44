"""Figures of trained networks."""

from pathlib import Path

import pytest
import torch

from experiments import amcl_histograms, multisupcon_umap, tsne_heads
from experiments.reproduction.experiment import Experiment, Outcome
from tests.experiments.pretended import all_trained, setting

FIGURES = {
    "tsne_heads": tsne_heads.EXPERIMENT,
    "multisupcon_umap": multisupcon_umap.EXPERIMENT,
    "amcl_histograms": amcl_histograms.EXPERIMENT,
}


def check_empty(outcome: Outcome) -> None:
    assert outcome.pictures == {}
    assert {verdict.answer for verdict in outcome.verdicts} == {"not testable here"}


@pytest.mark.parametrize("experiment", FIGURES.values(), ids=FIGURES)
def test_without_trainings_nothing_is_testable(experiment: Experiment, tmp_path: Path) -> None:
    where = setting(tmp_path)
    cells = [*experiment.cells(where)]
    failed = all_trained(where, cells, {cell: [] for cell in cells})
    check_empty(experiment.finish(where, failed))


def test_positives_are_views_of_an_item_and_negatives_of_two() -> None:
    # Views of three items: 10 and 11, 20 and 21, 30 and 31.
    z_ND = torch.tensor([[10.0], [11.0], [20.0], [21.0], [30.0], [31.0]])
    found = amcl_histograms.pairs_of(z_ND, lambda a, b: (b - a)[:, 0])
    assert found.positive_P.tolist() == [1, 1, 1]
    assert found.negative_P.tolist() == [21, -9, -9]
