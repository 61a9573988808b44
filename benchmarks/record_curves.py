"""Records the trainings that `search_curves` reads: `python -m benchmarks.record_curves FOLDER`.

Trains twelve temperatures with each of six seeds, on the photographs and on synthetic images, and
writes one file per training into FOLDER. A training that has its file is not repeated, so the
command can be stopped and started again, and several of them can share the FOLDER. The last one
writes search_curves.json. One training takes one to two minutes of one core.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.search import FIELD, TEMPERATURES, grid_spec
from benchmarks.search_curves import RECORDED
from mtcon_ray.base import metrics
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.training.trainer import Trainer

KINDS = {"photographs": True, "synthetic images": False}
SEEDS = range(6)


def main() -> None:
    """Train what has no file yet, then join the files if none is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args()
    for kind in options.kind or KINDS:
        for seed in SEEDS:
            for temperature in TEMPERATURES:
                path = curve_path(options.folder, kind, seed, temperature)
                if not path.exists():
                    record(kind, seed, temperature, path)
    if all(path.exists() for path in all_paths(options.folder)):
        RECORDED.write_text(joined(options.folder))


def record(kind: str, seed: int, temperature: float, path: Path) -> None:
    """Train once; write the validation accuracy after each epoch as a JSON list.

    A training that was cut begins anew: its checkpoint does not have the values of its epochs.
    """
    spec = grid_spec(photos=KINDS[kind]).trial({FIELD: temperature}, repeat=seed)
    store = path.parent / "store"
    dataset = open_dataset(spec.data, view_size=spec.views.size, store=store)
    with TemporaryDirectory() as folder:
        run = Trainer(spec, dataset, Path(folder), device=torch.device("cpu"))
        values = [round(each.metrics[metrics.MEAN_ACCURACY], 6) for each in run]
    path.write_text(json.dumps(values))
    print(f"{path.stem}: {values[-1]:.4f}", flush=True)


def curve_path(folder: Path, kind: str, seed: int, temperature: float) -> Path:
    """The file of one training."""
    return folder / f"{kind.replace(' ', '-')}-{seed}-{temperature}.json"


def all_paths(folder: Path) -> list[Path]:
    """The files of all trainings."""
    return [curve_path(folder, k, s, t) for k in KINDS for s in SEEDS for t in TEMPERATURES]


def joined(folder: Path) -> str:
    """search_curves.json: by kind of data a list of seeds, of each the curves by temperature."""
    found = {
        kind: [
            {str(t): json.loads(curve_path(folder, kind, s, t).read_text()) for t in TEMPERATURES}
            for s in SEEDS
        ]
        for kind in KINDS
    }
    # One line for each training.
    return json.dumps(found).replace("], ", "],\n ") + "\n"


if __name__ == "__main__":
    main()
