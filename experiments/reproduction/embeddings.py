"""Views of an embedding: its items in the plane, and its separation of labels or pairs."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from sklearn.manifold import TSNE

from mtcon_ray.spec.problem import MISSING

PERPLEXITY = 30
NEIGHBOURS = 10
NO_UMAP = "the package umap-learn is missing; install 'mtcon-ray[figures]'"


def tsne(z_ND: np.ndarray) -> np.ndarray:
    """Returns the items in the plane, float32 [N, 2], by t-SNE from the first two components.

    Van der Maaten and Hinton 2008. The perplexity is 30, less for fewer than 91 items.
    """
    perplexity = min(PERPLEXITY, (len(z_ND) - 1) / 3)
    found: np.ndarray = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(z_ND)
    return found


def umap_if_installed() -> Callable[[np.ndarray], np.ndarray] | None:
    """Returns a function for placing items in the plane by UMAP, or None without umap-learn.

    McInnes et al. 2018, arXiv:1802.03426, with the defaults of umap-learn and a fixed seed.
    """
    if find_spec("umap") is None:
        return None

    def place(z_ND: np.ndarray) -> np.ndarray:
        # Imported here, because it compiles its functions, which takes half a minute.
        from umap import UMAP

        # With a seed it runs in a single thread, and warns without an explicit n_jobs.
        found: np.ndarray = UMAP(random_state=0, n_jobs=1).fit_transform(z_ND)
        return found

    return place


def neighbour_accuracy(z_ND: np.ndarray, code_N: np.ndarray, k: int = NEIGHBOURS) -> float:
    """Returns the share of items whose class is the most frequent class of their k neighbours.

    Neighbours are the other labelled items of highest cosine. Among equally frequent classes, the
    lowest counts. `code_N` is int64 [N], MISSING where unknown.
    """
    known_N = code_N != MISSING
    code_n = torch.from_numpy(code_N[known_N])
    neighbours_nk = _neighbours(z_ND[known_N], k)
    votes_nC = F.one_hot(code_n[neighbours_nk]).sum(dim=1)
    return float((votes_nC.argmax(dim=1) == code_n).double().mean())


def neighbour_overlap(z_ND: np.ndarray, sets_NL: np.ndarray, k: int = NEIGHBOURS) -> float:
    """Returns the Jaccard overlap of label sets with k neighbours, minus that of random pairs.

    The mean over all items. The largest possible value is 1 minus the overlap of random pairs.
    `sets_NL` is uint8 [N, L] of 0 and 1.
    """
    overlap_NN = _overlaps(torch.from_numpy(sets_NL))
    N = len(overlap_NN)
    near = overlap_NN.gather(1, _neighbours(z_ND, k)).mean()
    random = (overlap_NN.sum() - overlap_NN.diagonal().sum()) / (N * (N - 1))
    return float(near - random)


def separation(positive_P: np.ndarray, negative_P: np.ndarray) -> float:
    """Returns the chance of a higher similarity in a positive pair than in a negative pair.

    This is the area under the ROC curve. Equal similarities count half.
    """
    ranks = rankdata(np.concatenate([positive_P, negative_P]))[: len(positive_P)]
    least = len(positive_P) * (len(positive_P) + 1) / 2
    return float((ranks.sum() - least) / (len(positive_P) * len(negative_P)))


def halving_attributes(sets_NL: np.ndarray) -> tuple[int, int]:
    """Returns the two attributes that divide the items into the most equal four groups.

    The smallest of the four groups is as large as possible.
    """
    sets = sets_NL.astype(np.int64)
    both_LL, count_L, N = sets.T @ sets, sets.sum(axis=0), len(sets)
    first_LL, second_LL = count_L[:, None] - both_LL, count_L[None, :] - both_LL
    neither_LL = N - both_LL - first_LL - second_LL
    least_LL = np.min([both_LL, first_LL, second_LL, neither_LL], axis=0)
    np.fill_diagonal(least_LL, -1)
    a, b = np.unravel_index(int(least_LL.argmax()), least_LL.shape)
    return int(a), int(b)


def _neighbours(z_ND: np.ndarray, k: int) -> torch.Tensor:
    """Returns the indices of each item's k nearest others by cosine, int64 [N, k] or fewer."""
    rows_ND = F.normalize(torch.from_numpy(z_ND).double(), dim=1)
    cosine_NN = (rows_ND @ rows_ND.T).fill_diagonal_(-torch.inf)
    return cosine_NN.topk(min(k, len(z_ND) - 1), dim=1).indices


def _overlaps(sets_NL: torch.Tensor) -> torch.Tensor:
    """Returns the Jaccard overlaps of all pairs, float64 [N, N], 1 for two empty sets."""
    bits_NL = sets_NL.double()
    both_NN = bits_NL @ bits_NL.T
    count_N = bits_NL.sum(dim=1)
    either_NN = count_N[:, None] + count_N - both_NN
    return torch.where(either_NN > 0, both_NN / either_NN.clamp(min=1), 1.0)
