"""A mirrored sweep on another machine: it is the same, and nothing else is overwritten."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mtcon_ray.base.paths import PREVIOUS_FILE, sweep_folder
from mtcon_ray.cli.main import program
from mtcon_ray.errors import DataError, SpecError, SweepError
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, with_values
from mtcon_ray.sweep.mirror import Mirror, mirrored
from mtcon_ray.sweep.mirror_objects import Entry, Objects
from mtcon_ray.sweep.restore import is_mirrored, restore
from tests.data.object_store import object_store
from tests.sweep.mirrored_sweep import BUCKET, URL, FolderStore, Notes, contents, problems, train_on
from tests.sweep.written_sweep import write_sweep
from tests.waiting import wait_until


def test_a_restored_sweep_is_the_mirrored_one(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    assert not is_mirrored(URL)
    Mirror(folder, BUCKET).claim()
    assert not is_mirrored(URL), "a sweep that has only begun cannot be resumed"
    num_files = Mirror(folder, BUCKET).copy()
    assert is_mirrored(URL)
    there = restore(URL, tmp_path / "new")
    assert there == sweep_folder(tmp_path / "new", "shoes-1")
    assert contents(there) == contents(folder)
    assert len(contents(there)) == num_files
    assert {(there / name).stat().st_mode & 0o77 for name in contents(there)} == {0}
    assert problems(there) == []
    before = len(store.written)
    Mirror(there, BUCKET).copy()
    assert store.written[before:] == [], "what was restored is not sent again"


def test_another_sweep_of_the_same_name_is_not_overwritten(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    Mirror(folder, BUCKET).copy()
    written = len(store.written)
    new, other = (sweep_folder(tmp_path / name, "shoes-1") for name in ("new", "other"))
    new.mkdir(parents=True)
    write_sweep(other)
    for mirror in (Mirror(new, BUCKET), Mirror(other, BUCKET)):
        for act in (mirror.claim, mirror.copy):
            with pytest.raises(SweepError, match=rf"or newer files .*`mtcon-ray resume {URL}`"):
                act()
    assert len(store.written) == written


def test_a_sweep_that_went_on_elsewhere_is_left_alone(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    """Also by a driver that has lost the connection, and does not know."""
    here = Mirror(folder, BUCKET)
    here.copy()
    there = restore(URL, tmp_path / "new")
    train_on(there, 2)
    Mirror(there, BUCKET).copy()
    train_on(folder, 3)
    with pytest.raises(SweepError, match="or newer files"):
        here.copy()
    assert problems(restore(URL, tmp_path / "third")) == []


def test_a_folder_of_that_name_is_gone_on_with_or_refused(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    mirror = Mirror(folder, BUCKET)
    mirror.copy()
    there = restore(URL, tmp_path / "new")
    train_on(there, 2)
    before = contents(there)
    assert restore(URL + "/", tmp_path / "new") == there
    assert contents(there) == before, "the same command may be repeated"
    train_on(folder, 2)
    mirror.copy()
    with pytest.raises(SweepError, match=r"another sweep, or older files .*--root"):
        restore(URL, tmp_path / "new")
    assert contents(there) == before


def test_a_download_that_was_cut_leaves_no_sweep_and_is_repeated(
    folder: Path, store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Mirror(folder, BUCKET).copy()
    there = sweep_folder(tmp_path / "new", "shoes-1")
    partly = there.with_name(".restoring-shoes-1")
    broken = store.folder / "bucket/deep/shoes-1/events.jsonl"
    text = broken.read_text()
    broken.write_text(text.replace("0.02", "0.07", 1))
    with pytest.raises(DataError, match=r"events.jsonl differs from mirror.json"):
        restore(URL, tmp_path / "new")
    assert not there.exists()
    # As a kill leaves it.
    (partly / "checkpoints" / "trial-0002").mkdir(parents=True)
    for name in ("plan.json", "checkpoints/trial-0002/last.previous.pt"):
        (partly / name).touch()
    broken.write_text(text + "a line of the next pass\n")
    assert contents(restore(URL, tmp_path / "new")) == contents(folder)
    assert not partly.exists()


@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "checkpoints/../x", "tune/x"])
def test_a_list_with_foreign_names_is_refused(
    store: FolderStore, tmp_path: Path, name: str
) -> None:
    Objects(URL).write_list({name: Entry("x", 1, mtime_ns=1)})
    with pytest.raises(SweepError, match=r"mirror.json was not written by this version"):
        restore(URL, tmp_path / "new")


@pytest.mark.parametrize(
    ("url", "error", "told"),
    [
        ("https://host/shoes-1", SpecError, "a mirror's URL must begin with s3://, gs://, got"),
        ("s3://key:canary@bucket/shoes-1", SpecError, "without a login"),
        ("s3://bucket/Shoes", SweepError, "a name must be lower case"),
        ("s3://bucket/none", DataError, "no mirror of a sweep found"),
    ],
)
def test_a_url_without_a_sweep_is_refused(
    store: FolderStore, tmp_path: Path, url: str, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told) as raised:
        restore(url, tmp_path)
    assert "canary" not in str(raised.value)


def test_commands_copy_the_rest_and_go_on_elsewhere(
    folder: Path, store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, new = str(folder.parents[1]), str(tmp_path / "new")
    refused = CliRunner().invoke(program, ["mirror", "shoes-1", "--root", root])
    assert (refused.exit_code, "storage.mirror" in refused.output) == (2, True)
    spec = with_values(load_recorded(folder / "spec.yaml"), {"storage.mirror": BUCKET})
    (folder / "spec.yaml").write_text(yaml.safe_dump(dump_spec(spec)))
    done = CliRunner().invoke(program, ["mirror", "shoes-1", "--root", root])
    assert (done.exit_code, done.output) == (0, f"7 files are at {URL}\n")
    resumed = list[tuple[Path, str, bool]]()

    def run_sweep(spec: RunSpec, *, root: Path, name: str, resume: bool, **more: Any) -> None:
        resumed.append((root, name, resume))
        raise SweepError("enough of it")

    monkeypatch.setattr("mtcon_ray.sweep.run.run_sweep", run_sweep)
    file = tmp_path / "spec.yaml"
    shutil.copy(folder / "spec.yaml", file)
    for words in (
        ["resume", URL, "--root", new],
        ["sweep", str(file), "--continue", "--name", "shoes-1", "--root", new + "er"],
        ["sweep", str(file), "--continue", "--name", "other", "--root", new],
    ):
        told = CliRunner().invoke(program, words)
        assert "enough of it" in told.output
    assert resumed == [
        (Path(new), "shoes-1", True),
        (Path(new + "er"), "shoes-1", True),
        (Path(new), "other", False),
    ]
    there = sweep_folder(Path(new + "er"), "shoes-1")
    assert contents(there) == contents(folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
def test_an_s3_server_that_is_away_for_a_while_loses_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The head's root is deleted in the end, and the sweep trained to its end elsewhere."""
    monkeypatch.setattr("mtcon_ray.sweep.mirror.MIRROR_SECONDS", 0.1)
    notes, url = Notes(), "s3://photos/my sweeps/shoes-1"
    with object_store(monkeypatch) as s3:
        with mirrored(folder, "s3://photos/my sweeps/", notes, resume=False):
            wait_until(lambda: is_mirrored(url), "a first copy")
            with s3.away():
                wait_until(lambda: "could not" in caplog.text.lower(), "a failed copy")
                train_on(folder, 2)
                before = time.monotonic()
                with pytest.raises(DataError):
                    is_mirrored(url)
                # pyarrow's own ten attempts take 6.4 s, for which a driver would wait at its end.
                assert time.monotonic() - before < 5
            wait_until(
                lambda: any("trial-0002/last.pt" in key for key in s3.names()),
                "the server's return",
            )
        assert notes.told == []
        whole = contents(folder)
        shutil.rmtree(folder.parents[1])
        there = restore(url, tmp_path / "new")
        lost = {f"checkpoints/trial-0002/{PREVIOUS_FILE}"}
        assert contents(there) == {n: data for n, data in whole.items() if n not in lost}
        train_on(there, 3)
        Mirror(there, "s3://photos/my sweeps/").copy()
        assert not [key for key in s3.names() if "last.pt" in key]
        assert problems(restore(url, tmp_path / "third")) == []
    assert "canary" not in caplog.text


def test_a_network_that_was_cut_is_not_restored(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    Mirror(folder, BUCKET).copy()
    network = next(store.folder.rglob("model.pt-*"))
    network.write_bytes(network.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"differs from mirror\.json"):
        restore(URL, tmp_path / "new")
