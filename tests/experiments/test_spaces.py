"""Figures of trained networks: spaces of heads, neighbours, similarities of pairs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import amcl_histograms, multisupcon_umap, tsne_heads
from experiments.reproduction.cells import Cell
from experiments.reproduction.spaces import choose_items, head_spaces, open_trained
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.comparison.row import Row
from mtcon_ray.sweep.run import train_once
from tests.experiments.pretended import all_trained, setting

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("figure", [tsne_heads, multisupcon_umap, amcl_histograms])
def test_without_trainings_nothing_is_testable(figure: Any, tmp_path: Path) -> None:
    where = setting(tmp_path)
    cells = [*figure.EXPERIMENT.cells(where)]
    failed = all_trained(where, cells, {cell: [] for cell in cells})
    outcome = figure.EXPERIMENT.finish(where, failed)
    assert outcome.pictures == {}
    assert {verdict.answer for verdict in outcome.verdicts} == {"not testable here"}


def test_spaces_are_those_of_the_kept_heads_on_test_items(tmp_path: Path) -> None:
    small = ["data.num_items=100", "train.epochs=1", "evaluate.bootstrap=10"]
    where = setting(tmp_path, "smoke", *small, "tracking.offline=true")
    spec = where.spec_of(Cell("zappos50k", "mtcon"))
    row = Row("one", train_once(spec, root=tmp_path, callbacks=Callbacks()))
    opened = open_trained(row, row.finished[0], where.root)
    rows = choose_items(opened, "test", 7)
    assert len(set(rows)) == 7
    assert np.isin(rows, opened.dataset.table.rows("test")).all()
    assert np.array_equal(rows, choose_items(opened, "test", 7))
    assert len(choose_items(opened, "test", 1000)) == len(opened.dataset.table.rows("test"))
    spaces = head_spaces(opened, rows)
    shapes = {head: z.shape for head, z in spaces.items()}
    assert shapes == dict.fromkeys(("shape", "texture", "colour"), (7, 8))
    assert np.linalg.norm(spaces["shape"], axis=1) == pytest.approx(1.0, abs=1e-5)
