"""Records the trainings that `search_curves` reads: `python -m benchmarks.record_curves FOLDER`.

Trains twelve temperatures with each of six seeds, on the photographs and on synthetic images, and
writes a file per training into FOLDER. A training with a file is not repeated, so the command can
be stopped and started again, and several commands can share the FOLDER. The last command writes
search_curves.json. A training takes one to two minutes of a core.
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
    """Trains all missing files, then joins the files if all exist."""
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
    """Trains once and writes the validation accuracy after each epoch as a JSON list.

    An interrupted training starts again, because its checkpoint lacks earlier epochs' accuracies.
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
    """Returns the file of a training."""
    return folder / f"{kind.replace(' ', '-')}-{seed}-{temperature}.json"


def all_paths(folder: Path) -> list[Path]:
    """Returns the files of all trainings."""
    return [curve_path(folder, k, s, t) for k in KINDS for s in SEEDS for t in TEMPERATURES]


def joined(folder: Path) -> str:
    """Returns search_curves.json: by kind of data, a list over seeds of curves by temperature."""
    found = {
        kind: [
            {str(t): json.loads(curve_path(folder, kind, s, t).read_text()) for t in TEMPERATURES}
            for s in SEEDS
        ]
        for kind in KINDS
    }
    # A line for each training.
    return json.dumps(found).replace("], ", "],\n ") + "\n"


if __name__ == "__main__":
    main()
