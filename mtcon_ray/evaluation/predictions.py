"""Storage of a training's test predictions, for comparisons of trainings item by item.

predictions.npz holds plain arrays with an entry for each of the n test items with a known label.
<label> is the label's name in the metrics:

fingerprint                       of the data
<test|heldout>/<label>/rows       int64 [n], the items' rows in the table of labels, ascending
<test|heldout>/<label>/truth      class codes [n], or bits uint8 [n, L], 255 unknown
<test|heldout>/<label>/predicted  class codes [n]
<test|heldout>/<label>/scores     float32 [n, L] instead, of a label set
<test|heldout>/<label>/names      JSON list of the classes by code, or of the set's labels
<test|heldout>/<label>/groups     int64 [n], equal for similar items, only with data.group_column
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from mtcon_ray.base.metrics import Kind
from mtcon_ray.base.regular_file import check_stored
from mtcon_ray.base.root_files import below
from mtcon_ray.data.disk import whole_file

PREDICTED = {"classes": "predicted", "set": "scores"}


def kind_of(truth: np.ndarray) -> Kind:
    """Returns the kind of a label from the shape of its true values."""
    return "set" if truth.ndim == 2 else "classes"


@dataclass(frozen=True)
class LabelPredictions:
    """A label's true values and a training's predictions, arrays as in the file.

    `names` are the names of the classes or of the set's labels, () in files without names. Without
    `groups` each item is alone. Raises ValueError unless all arrays hold numbers of the same items,
    true values and groups are whole numbers, and the names are texts.
    """

    rows: np.ndarray
    truth: np.ndarray
    predicted: np.ndarray
    names: Sequence[str] = ()
    groups: np.ndarray | None = None

    def __post_init__(self) -> None:
        arrays, shape = (self.rows, self.truth, self.predicted), self.truth.shape
        fits = [array.shape for array in arrays] == [shape[:1], shape, shape]
        groups = self.rows if self.groups is None else self.groups
        fits &= groups.shape == shape[:1] and groups.dtype.kind in "iu"
        is_number = (a.dtype.kind in "iuf" and a.dtype.isnative and a.itemsize <= 8 for a in arrays)
        are_numbers = self.truth.dtype.kind in "iu" and all(is_number) and self.truth.size > 0
        if not (len(shape) in (1, 2) and fits and are_numbers):
            raise ValueError("arrays must be numbers of the same items")
        if not (isinstance(self.names, list | tuple) and all(type(n) is str for n in self.names)):
            raise ValueError("names must be texts")


# A training's predictions by (split, label's name in the metrics). The split is test or heldout.
Predictions = dict[tuple[str, str], LabelPredictions]


def save_predictions(path: Path, fingerprint: str, predictions: Predictions) -> None:
    """Writes the file atomically. Raises StorageError if it cannot be written."""
    arrays = {"fingerprint": np.array(fingerprint)}
    for (split, label), found in predictions.items():
        arrays[f"{split}/{label}/rows"] = found.rows
        arrays[f"{split}/{label}/truth"] = found.truth
        arrays[f"{split}/{label}/{PREDICTED[kind_of(found.truth)]}"] = found.predicted
        arrays[f"{split}/{label}/names"] = np.array(json.dumps(found.names))
        if found.groups is not None:
            arrays[f"{split}/{label}/groups"] = found.groups
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_predictions(path: Path) -> Predictions | None:
    """Returns the predictions saved by `save_predictions`, or None if the file is not readable."""
    try:
        # Opened here, because np.load(path) leaves the file open if it raises.
        with open(path, "rb", opener=below) as opened, np.load(opened, allow_pickle=False) as file:
            check_stored(file.zip)
            arrays = {name: file[name] for name in file.files}
            found = {}
            for name in arrays:
                place, _, part = name.rpartition("/")
                if part in PREDICTED.values():
                    split, _, label = place.partition("/")
                    rows, truth = arrays[f"{place}/rows"], arrays[f"{place}/truth"]
                    names = json.loads(str(arrays.get(f"{place}/names", "[]")))
                    more = names, arrays.get(f"{place}/groups")
                    found[split, label] = LabelPredictions(rows, truth, arrays[name], *more)
            return found
    except (OSError, ValueError, KeyError, EOFError, MemoryError, RecursionError, BadZipFile):
        return None
