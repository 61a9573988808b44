"""Tests of files of embeddings, and of the search for nearest images in them."""

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from mtcon_ray.api import load_encoder
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.errors import CheckpointError, DataError
from mtcon_ray.export import embed
from mtcon_ray.export.embed import data_at, embed_images, open_images
from mtcon_ray.export.search import NETWORK, search
from mtcon_ray.records.stored import find_network
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.run import train_once
from tests import specs
from tests.cli import conftest
from tests.data.sources.downloads import save_image

NUM = 12


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a root with the training `one`, and a folder `photos` of NUM images beside it."""
    folder = tmp_path_factory.mktemp("embed")
    spec = parse_spec({**specs.TINY, "name": "one", "train": {"epochs": 1, "batch_size": 16}})
    train_once(spec, name="one", root=folder / "root", callbacks=Callbacks())
    (folder / "photos" / "b").mkdir(parents=True)
    generator = np.random.default_rng(0)
    for i in range(NUM):
        image = generator.integers(0, 256, (20 + i, 25, 3), dtype=np.uint8)
        Image.fromarray(image).save(folder / "photos" / ("b" if i % 2 else ".") / f"{i:02}.png")
    return folder / "root"


def run(root: Path, *words: str | Path, code: int = 0) -> str:
    done = conftest.run("-q", *words, "--root", root)
    assert done.exit_code == code, done.output
    return done.output


def test_a_file_has_the_rows_of_the_python_interface(root: Path, tmp_path: Path) -> None:
    photos, file = root.parent / "photos", tmp_path / "out.parquet"
    assert f"{file}: {NUM} rows" in run(root, "embed", "one", photos, "--to", file)
    found = pd.read_parquet(file)
    names = [path.relative_to(photos).as_posix() for path in photos.rglob("*.png")]
    assert list(found["path"]) == sorted(names)
    assert {"embedding", "heads/shape", "heads/colour", "heads/texture"} < set(found.columns)
    expected = load_encoder("one", root=root).embed([photos / name for name in found["path"]])
    assert list(expected.columns) == list(found.columns)
    for column in found.columns[1:]:
        ours, theirs = (np.stack([*table[column]]) for table in (found, expected))
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert [p.name for p in tmp_path.iterdir()] == ["out.parquet"]


def test_exports_embed_alike(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported, files = tmp_path / "exported", [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    run(root, "export", "one", "--out", exported)
    for model, file in (("one", files[0]), (str(exported), files[1])):
        run(root, "embed", model, root.parent / "photos", "--to", file)
    assert files[0].read_bytes() == files[1].read_bytes()
    query = root.parent / "photos" / "00.png"
    told = run(root, "embed", tmp_path / "a.pt", query, "--to", files[0], code=2)
    assert "there is no checkpoint and no export at" in told
    assert "needs --among" in run(root, "neighbours", exported, query, code=2)
    monkeypatch.chdir(tmp_path)
    exported.rename("one")
    assert find_network("one", root)[1] is not None, "a sweep has precedence"
    exported = (tmp_path / "one").rename(tmp_path / "other")
    about = json.loads((exported / "model.json").read_text())
    negative = {**about, "sizes": {**about["sizes"], "shape": -5}}
    for name, text in {
        "weights.safetensors": "", "heads.safetensors": "", "model.json": '{"spec": []}',
        "./model.json": json.dumps({**about, "sizes": {}}),
        "../other/model.json": json.dumps(negative),
    }.items():  # fmt: skip
        kept = (exported / name).rename(tmp_path / "kept")
        if text:
            (exported / name).write_text(text)
        with pytest.raises(CheckpointError, match="no complete export"):
            load_encoder(exported, root=root)
        kept.rename(exported / name)


def test_images_are_made_square_as_in_the_training(root: Path, tmp_path: Path) -> None:
    encoder = load_encoder("one", root=root)
    encoder.resize = "crop"
    images = open_images(data_at(root.parent / "photos"), encoder, tmp_path, Callbacks())
    pixels, _ = images.decoded([0], encoder.size)
    (file,) = (root.parent / "photos").glob(images.names[0])
    assert (pixels[0] == encoder.stored([file])[0].numpy()).all()
    assert (pixels[0] != decode_image(file.read_bytes(), encoder.size)).any()


def test_tables_and_specs_name_images_too(root: Path, tmp_path: Path) -> None:
    photos, file = root.parent / "photos", tmp_path / "out.parquet"
    (tmp_path / "t.csv").write_text("photo,x\nb/01.png,1\n00.png,2\n")
    (tmp_path / "T.TSV").write_text("photo\tx\nb/01.png\t1\n00.png\t2\n")
    column = ("--column", "photo")
    run(root, "embed", "one", tmp_path / "T.TSV", "--images", photos, *column, "--to", file)
    assert pq.read_table(file)["path"].to_pylist() == ["b/01.png", "00.png"]
    none, before = tmp_path / "none.parquet", file.read_bytes()
    told = run(root, "embed", "one", tmp_path / "t.csv", *column, "--to", file, code=2)
    assert "name their folder by --images" in told
    assert file.read_bytes() == before, "an earlier file stays"
    assert not file.with_name(f"{file.name}.parts").exists(), "images may be mended"
    told = run(root, "embed", "one", photos, *column, "--to", none, code=2)
    assert "--column and --images are options for a table" in told
    told = run(root, "embed", "one", "s3://bucket/photos", "--to", none, code=2)
    assert "images: must be a path of this machine" in told
    assert not none.exists()
    (tmp_path / "s.yaml").write_text(json.dumps({**specs.TINY, "version": 1, "name": "more"}))
    with patch.object(embed, "ThreadPoolExecutor", wraps=ThreadPoolExecutor) as pool:
        run(root, "embed", "one", tmp_path / "s.yaml", "--to", file)
    assert {call.args for call in pool.call_args_list} == {(1,)}, "a thread draws synthetic images"
    assert pq.read_table(file)["path"].to_pylist() == [str(i) for i in range(120)]


def test_images_beside_folders_of_splits_are_noted(root: Path, tmp_path: Path) -> None:
    for name in ("train/0.png", "test/1.png", "extra/2.png"):
        save_image(tmp_path / name, 9)
    told = Mock()
    images = open_images(data_at(tmp_path), load_encoder("one", root=root), tmp_path, told)
    assert images.names == ["test/1.png", "train/0.png"]
    assert "warning: 1 files of" in told.on_note.call_args.args[0]


def stop() -> Mock:
    """Returns callbacks that end the embedding after two blocks, as a killed process does."""
    return Mock(on_embed=Mock(side_effect=[None, KeyboardInterrupt]))


def test_embedding_continues(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "BATCH_SIZE", 4)
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(NUM):
        Image.new("RGB", (20, 20), (i * 20, 0, 0)).save(photos / f"{i:02}.png")
    (photos / "03.png").write_bytes(b"no image")
    encoder = load_encoder("one", root=root)
    images = open_images(data_at(photos), encoder, tmp_path, Callbacks())
    whole, stopped = tmp_path / "whole.parquet", tmp_path / "stopped.parquet"
    bad = embed_images(encoder, images, whole, "model", Callbacks())
    assert bad.keys() == {3}
    assert pq.read_table(whole)["embedding"].null_count == 1
    with pytest.raises(KeyboardInterrupt):
        embed_images(encoder, images, stopped, "model", stop())
    project = Mock(wraps=encoder.project)
    monkeypatch.setattr(encoder, "project", project)
    assert embed_images(encoder, images, stopped, "model", Callbacks()) == bad
    assert project.call_count == 1
    assert stopped.read_bytes() == whole.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        embed_images(encoder, images, stopped, "model", stop())
    project.reset_mock()
    embed_images(encoder, images, stopped, "another model", Callbacks())
    assert project.call_count == 3


def test_nearest_of_all_pairs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcon_ray.export.search.BLOCK", 5)
    photos, file = root.parent / "photos", tmp_path / "out.parquet"
    run(root, "embed", "one", photos, "--to", file)
    frame, digest = pd.read_parquet(file), pq.read_schema(file).metadata[NETWORK].decode()
    x = torch.nn.functional.normalize(torch.tensor(np.stack([*frame["heads/shape"]])).double())
    expected = (x @ x.T).argsort(dim=1, descending=True, stable=True)[:, :7]
    table = pq.read_table(file)
    unread = pa.array([[], None], table["heads/shape"].type).slice(1)
    nothing = table.slice(0, 1).set_column(2, "heads/shape", unread)
    assert table.column_names[2] == "heads/shape"
    pq.write_table(pa.concat_tables([nothing, table, table]), tmp_path / "twice.parquet")
    twice = search(tmp_path / "twice.parquet", "heads/shape", x[:1], 4, digest)[0]
    first, second = expected[0, :2].tolist()
    assert [n.row for n in twice] == [1 + first, 1 + NUM + first, 1 + second, 1 + NUM + second]
    found = search(file, "heads/shape", x, 7, digest)
    named = [[(i, frame["path"][i]) for i in rows] for rows in expected.tolist()]
    assert [[(n.row, n.path) for n in group] for group in found] == named
    with pytest.raises(DataError, match=r"a column 'heads/shap' .*; did you mean 'heads/shape'\?"):
        search(file, "heads/shap", x, 1, digest)
    with pytest.raises(DataError, match="embeddings of another network"):
        search(file, "heads/shape", x, 1, "other")
    with pytest.raises(DataError, match="must hold 3 numbers a row"):
        search(file, "heads/shape", x[:, :3], 1, digest)


LISTS = pa.list_(pa.float32())
RAGGED = pa.array([[1.0], [1.0, 2.0, 3.0]], LISTS)


OTHER_FILES = [
    ({"path": [1], "embedding": pa.array([[0.1, 0.2]], LISTS)}, "must have a column path"),
    ({"path": ["a"], "embedding": pa.array([[1, 2]])}, "a column 'embedding' of embeddings"),
    ({"path": ["a", "b"], "embedding": RAGGED}, "must hold 2 numbers a row"),
    (None, "make it with `mtcon-ray embed`"),
]


@pytest.mark.parametrize(("table", "message"), OTHER_FILES)
def test_other_files_are_refused(table: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_text("x") if table is None else pq.write_table(pa.table(table), file)
    with pytest.raises(DataError, match=message):
        search(file, "embedding", torch.ones(1, 2), 1, "")


def test_rows_not_finite_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [[math.nan, 1.0], None, [None, 1.0], [1.0, 0.0]]
    table = {"path": ["a", "b", None, "d"], "embedding": pa.array(rows, LISTS)}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    (found,) = search(tmp_path / "a.parquet", "embedding", torch.tensor([[1.0, 0.0]]), 9, "")
    assert [tuple(each) for each in found] == [(3, "d", 1.0)]
    assert caplog.messages == ["3 of 4 images have no finite embedding and are left out"]
    pq.write_table(pa.table(table).slice(0, 3), tmp_path / "a.parquet")
    assert search(tmp_path / "a.parquet", "embedding", torch.ones(1, 2), 9, "") == [[]]


def test_neighbours_as_a_table_json_and_a_page(root: Path, tmp_path: Path) -> None:
    photos, page = root.parent / "photos", tmp_path / "near.html"
    query = photos / "b" / "05.png"
    lines = run(root, "neighbours", "one", query, "--among", photos, "-k", "3").splitlines()
    assert lines[:2] == [str(query), "similarity  image"]
    assert lines[2].split() == ["1.0000", "b/05.png"]
    assert len(lines) == 5
    options = ("--head", "colour", "--json", "--html", page)
    groups = json.loads(run(root, "neighbours", "one", query, photos / "00.png", *options))
    assert list(groups) == [str(query), str(photos / "00.png")]
    assert [len(group) for group in groups.values()] == [10, 10]  # of the training's own images
    html = page.read_text()
    assert html.count('src="data:image/jpeg;base64,') == 22
    assert "default-src 'none'" in html
    (tmp_path / "no.png").write_text("no image")
    for name, why in (("no.png", ": not an image"), ("none.png", "")):
        refused = run(root, "neighbours", "one", tmp_path / name, code=2)
        assert re.search(f"an IMAGE cannot be read: .*{name}{why}", refused)
    refused = run(root, "neighbours", "one", query, "--head", "colours", code=2)
    assert "did you mean 'colour'" in refused
