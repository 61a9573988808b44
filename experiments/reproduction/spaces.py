"""Networks of finished trainings with their heads, and the images to look at them with."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import MODEL_FILE, checkpoint_folder
from mtcon_ray.comparison.row import Row
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.export.trained_network import open_checkpoint
from mtcon_ray.records.results import TrialResult
from mtcon_ray.spec.data.base import Split


def open_trained(row: Row, trial: TrialResult, root: Path) -> Evaluation:
    """Returns a training's kept network with its heads and its data.

    Uses a GPU only if there is one. Raises the errors of `open_checkpoint`.
    """
    # Its cluster may have had more workers and GPUs than this machine.
    gpus = 1 if torch.cuda.is_available() else 0
    here = ("resources.workers=1", f"resources.gpus={gpus}")
    return open_checkpoint(model_file(row, trial), root=root, overrides=here, callbacks=Callbacks())


def model_file(row: Row, trial: TrialResult) -> Path:
    """Returns the path of a training's kept network."""
    assert row.results is not None
    return checkpoint_folder(row.results.folder, trial.name) / MODEL_FILE


def choose_items(opened: Evaluation, split: Split, limit: int) -> np.ndarray:
    """Returns the rows of at most `limit` random items of a split, ascending, always the same."""
    rows = opened.dataset.table.rows(split)
    return np.sort(np.random.default_rng(0).permutation(rows)[:limit])


def head_spaces(opened: Evaluation, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the output of every head for these items, float32 [N, D], by head."""
    images, spec = opened.dataset.images, opened.spec
    size, device = spec.evaluate.batch_size, opened.device
    given = opened.network, images, rows, spec.views
    read = partial(extract_features, *given, batch_size=size, device=device)
    return {head: read(head=head).numpy() for head in opened.network.names}
