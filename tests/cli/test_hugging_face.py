"""Data sets of Hugging Face and Parquet files: the program of the page, and their refusal."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest

from mtcon_ray.spec.run_spec import load_spec
from tests.cli.conftest import accepted, refused
from tests.data.sources.downloads import png
from tests.pages import DOCS

HEADING, TEXT = "Hugging Face and Parquet", (DOCS / "data.md").read_text(encoding="utf-8")
PROGRAMS = [part.split("```")[0] for part in TEXT.split("```python\n")[1:]]


def test_init_reads_what_the_page_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package `datasets` is replaced, so the test needs neither the package nor the network."""
    (tmp_path / "away.png").write_bytes(png(99))
    images = [{"bytes": png(i), "path": f"{i}.png" if i else None} for i in range(40)]
    images[39] = {"bytes": None, "path": str(tmp_path / "away.png")}
    rows = [{"image": image, "breed": i % 2, "fur": "ab"[i % 2]} for i, image in enumerate(images)]
    rows[3]["breed"] = -1
    features = {"image": object(), "breed": SimpleNamespace(names=["pug", "lab"])}
    parts = {"train": rows[:20], "validation": rows[20:30], "test": rows[30:]}
    casts = {name: Mock(return_value=part) for name, part in parts.items()}
    data = {name: Mock(features=features, cast_column=cast) for name, cast in casts.items()}
    module, load = ModuleType("datasets"), {"USER/NAME": data}.get
    vars(module).update(ClassLabel=SimpleNamespace, Image=SimpleNamespace, load_dataset=load)
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.chdir(tmp_path)
    exec(PROGRAMS[1], {})
    casts["test"].assert_called_once_with("image", SimpleNamespace(decode=False))
    table = pd.read_csv("labels.csv", keep_default_na=False)
    assert table["image"].tolist()[:3] == ["train-0", "train-1.png", "train-2.png"]
    written = [Path("images", name).read_bytes() for name in table["image"]]
    assert written == [*map(png, range(39)), png(99)]
    assert table["breed"].tolist()[:5] == ["pug", "lab", "pug", "", "pug"]
    accepted("init", "labels.csv", "images", "-o", "spec.yaml")
    found = load_spec(tmp_path / "spec.yaml").data.model_dump()
    assert (found["tasks"], found["split_column"]) == (("breed", "fur"), "split")


def test_lines_of_the_page_convert_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"number": [1, None, 2], "tags": [["a", "b"], [], None]}
    pd.DataFrame(columns).to_parquet("labels.parquet")
    exec(PROGRAMS[0], {"pandas": pd})
    assert Path("labels.csv").read_text() == "number,tags\n1,a|b\n,\n2,\n"


def test_files_of_rows_are_refused_with_the_page_that_converts_them(tmp_path: Path) -> None:
    assert f"## {HEADING}\n" in TEXT
    file, spec = tmp_path / "train" / "0000.Parquet", tmp_path / "spec.yaml"
    file.parent.mkdir()
    file.touch()
    spec.write_text(f"{{name: a, data: {{kind: table, csv: {file}, images: ., tasks: [a]}}}}")
    for words, why in {
        ("init", tmp_path): "has no images (files ending in",
        ("init", file): "0000.Parquet must be a CSV, got a Parquet or Arrow file",
        ("init", file, tmp_path): "must be a CSV",
        ("validate", spec): "must be a CSV",
    }.items():
        told = refused(*words)
        assert why in told
        assert f"; write images and a CSV of labels, see '{HEADING}' in docs/data.md" in told
