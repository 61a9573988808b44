"""A table of labelled images, for tests of whole commands."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image


def write_table(folder: Path, **labels: Sequence[str]) -> None:
    """Writes 120 images of noise into `images/`, and labels.csv.

    Its columns repeat the labels that are given for them.
    """
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = {"image": [f"{row}.png" for row in range(120)]}
    for name in rows["image"]:
        Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(folder / "images" / name)
    rows |= {name: [given[i % len(given)] for i in range(120)] for name, given in labels.items()}
    pd.DataFrame(rows).to_csv(folder / "labels.csv", index=False)
