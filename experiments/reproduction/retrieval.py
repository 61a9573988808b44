"""Spaces of a network for retrieval, and retrieval scores over seeds and resampled queries."""

from copy import deepcopy
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.evaluation.intervals import ITEMS_SEED, RESAMPLES, Scores
from mtcon_ray.evaluation.scores import resampled_counts
from mtcon_ray.training.trainer import Trainer

# Names of the spaces of a network.
ENCODER, HEAD, HIDDEN = "encoder", "head", "hidden layer"


def query_scores(
    by_seed: dict[int, np.ndarray],
    rows: np.ndarray,
    truth: np.ndarray,
    groups: np.ndarray | None = None,
) -> Scores:
    """Returns the mean over queries by seed, and in the resamples of the queries.

    Each array holds a value per query, float [n], NaN for uncounted queries, which are the same
    for each seed. Whole groups of queries are drawn, int64 [n], by default each query is alone.
    """
    seeds = tuple(sorted(by_seed))
    value_Sn = np.stack([by_seed[seed] for seed in seeds]).astype(np.float64)
    counted = ~np.isnan(value_Sn[0])
    value_Sn = value_Sn[:, counted]
    own = None if groups is None else groups[counted]
    counts = resampled_counts(int(counted.sum()), RESAMPLES, ITEMS_SEED, own)
    counts_nK = torch.cat(list(counts), dim=1).double().numpy()
    drawn_SK = value_Sn @ counts_nK / counts_nK.sum(axis=0)
    return Scores(seeds, value_Sn.mean(axis=1), drawn_SK, rows[counted], truth[counted], own)


def spaces(trainer: Trainer, rows: np.ndarray) -> dict[str, Tensor]:
    """Returns the embeddings of images by the name of their space.

    The spaces are the encoder's, each head's, and each head's hidden layer's.
    """
    network, images, spec = trainer.network, trainer.dataset.images, trainer.spec

    size, device = spec.evaluate.batch_size, trainer.device
    given = network, images, rows, spec.views
    read = partial(extract_features, *given, batch_size=size, device=device)
    found = {ENCODER: read()} | {f"{HEAD} {name}": read(head=name) for name in network.names}
    if getattr(spec.method, "head", None) == "hidden":
        for name, head in zip(network.names, network.heads, strict=True):
            assert isinstance(head, nn.Sequential)
            with torch.inference_mode():
                found[f"{HIDDEN} {name}"] = deepcopy(head[0]).cpu()(found[ENCODER])
    return found
