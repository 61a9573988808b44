"""`init` with a folder of Hugging Face's `datasets`, whose columns have the labels."""

from pathlib import Path
from typing import Any

import datasets

from mtcon_ray.spec.run_spec import load_spec
from tests.cli.conftest import accepted
from tests.data.sources.downloads import png

NUM_ROWS = 40


def test_columns_by_their_role(tmp_path: Path) -> None:
    """The column `breed` is a ClassLabel of few rows per class."""
    columns: dict[str, Any] = {
        "image": [{"bytes": png(i), "path": None} for i in range(NUM_ROWS)],
        "breed": [i % 30 for i in range(NUM_ROWS)],
        "colour": ["red", "blue"] * 20,
        "tags": [["big", "wet"], ["big"]] * 20,
        "captions": [["a | b"], ["c"]] * 20,
        "weight": [i / 4 for i in range(NUM_ROWS)],
        "stars": [float(i) for i in range(NUM_ROWS)],
        "zero": [0.0] * NUM_ROWS,
        "sentence": [f"animal {i}" for i in range(NUM_ROWS)],
        "place": [{"x": i} for i in range(NUM_ROWS)],
    }
    made = tmp_path / "My Animals"
    breeds = datasets.ClassLabel(names=[f"breed {i}" for i in range(30)])
    rows = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    rows.cast_column("breed", breeds).save_to_disk(str(made))
    told = accepted("init", made, "-o", tmp_path / "spec.yaml").stdout
    assert "  splits    drawn at random from seed 0" in told
    spec = load_spec(tmp_path / "spec.yaml")
    assert (spec.name, spec.data.kind) == ("my-animals", "hf")
    assert (spec.data.tasks, spec.data.held_out) == (("breed", "colour", "tags"), ())
    data = spec.data.model_dump()
    assert (data["multi_hot"], data["continuous"]) == ({"tags": "tags"}, ("weight", "stars"))
    assert data["image_column"] == "image"
    unused = [f"  # - {name}\n" for name in ("captions", "zero", "sentence", "place")]
    assert "".join(unused) in (tmp_path / "spec.yaml").read_text()
