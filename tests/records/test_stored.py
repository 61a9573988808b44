"""Tests of the record of a sweep in an object store, and of its copies on a machine."""

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mtcon_ray.base.lock import ELSEWHERE_FILE, is_driven
from mtcon_ray.base.paths import choose_root, event_file, sweep_folder
from mtcon_ray.data import objects
from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import StorageError, SweepError
from mtcon_ray.records import stored
from mtcon_ray.records.event_log import EventLog, read_events
from mtcon_ray.records.events import Reported, Started
from mtcon_ray.records.results import load_sweep
from mtcon_ray.records.stored import StoredSweep, driven, find_sweep, refresh_names, summaries
from mtcon_ray.records.stored_log import read_log
from tests.data.folder_store import FolderStore
from tests.some import some
from tests.sweep.written_sweep import write_sweep
from tests.waiting import wait_until

URL = "s3://bucket/root"
SWEEP = f"{URL}/sweeps/a"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAG_SECONDS", "RENEW_SECONDS", "SUMMARY_SECONDS"):
        monkeypatch.setattr(objects, name, 0.05)
    monkeypatch.setattr(objects, "RETRY_SECONDS", 0.05)


Drive = Callable[..., StoredSweep]


def root_of(tmp_path: Path, machine: str) -> Path:
    """Returns the root on one of several machines."""
    return choose_root(URL, str(tmp_path / machine))


@pytest.fixture
def drive(tmp_path: Path, store: FolderStore) -> Iterator[Drive]:
    """Returns a function that begins a driver of the sweep on a machine."""
    drivers: list[StoredSweep] = []

    def drive(machine: str = "one", *, take_over: bool = False) -> StoredSweep:
        folder = sweep_folder(root_of(tmp_path, machine), "a")
        if not folder.exists():
            write_sweep(folder)
            event_file(folder).unlink()
        drivers.append(StoredSweep(folder, SWEEP, take_over=take_over))
        return drivers[-1]

    yield drive
    store.before = lambda request, path: None
    for each in drivers:
        each.close()


def there() -> bytes:
    return read_log(Objects(SWEEP))


def start(trial: str | None = None) -> Started:
    return Started(trial=trial, params={}, tags={})


def line(epoch: int) -> str:
    return Reported(trial="trial-0000", epoch=epoch, metrics={}).to_line()


def local(log: EventLog) -> bytes:
    return log.path.read_bytes()


def begun(sweep: StoredSweep) -> EventLog:
    """Returns the log of a driver, which has the start of the sweep."""
    log = sweep.open_log()
    log.append(start())
    return log


def test_a_start_is_in_the_store_at_once_and_reports_soon(drive: Drive, store: FolderStore) -> None:
    sweep = drive()
    log = sweep.open_log()
    log.append(start(), start("trial-0000"))
    assert there() == local(log)
    assert [name[-8:] for name in store.names() if "/parts/" in name] == ["000001-0"]
    assert sweep.done() == log.end
    log.append_lines([line(1), line(2)])
    wait_until(lambda: there() == local(log), "the reports in the store")


def test_a_start_waits_for_a_store_that_does_not_answer(drive: Drive, store: FolderStore) -> None:
    sweep = drive()
    log = sweep.open_log()
    refused = store.refuse(part="/log/", times=3)
    log.append(start())
    assert len(refused) == 3
    assert there() == local(log)
    store.refuse()
    sweep.patience = 0.1
    with pytest.raises(StorageError, match=r"cannot use the root at .*503 Slow Down"):
        log.append(start("trial-0000"))


def test_a_driver_whose_sweep_was_taken_writes_nothing_more(drive: Drive) -> None:
    first, told = drive(), list[str]()
    first.on_lost = told.append
    log = begun(first)
    second = drive("two", take_over=True)
    wait_until(lambda: bool(told), "the first driver to notice")
    assert "another driver has taken over a" in told[0]
    assert first.done() == -1
    with pytest.raises(StorageError, match="another driver has taken over"):
        log.append(start("trial-0000"))
    other = second.open_log()
    assert len(read_events(other.path)) == 1
    other.append(start("trial-0007"))
    first.close()
    assert there() == local(other)
    with driven(first.folder, told.append, take_over=True) as third:
        # Lines that only one machine has are dropped.
        assert local(some(third).open_log()) == local(other)


def test_a_driver_without_claim_looks_first(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not renew its claim, and looks before it writes."""
    log = begun(drive())
    monkeypatch.setattr(objects, "RENEW_SECONDS", 1e6)
    monkeypatch.setattr(stored, "UNSURE_SECONDS", -1.0)
    drive("two", take_over=True)
    with pytest.raises(StorageError, match="another driver has taken over"):
        log.append(start("trial-0000"))


def test_a_late_driver_removes_nothing(drive: Drive) -> None:
    """It notices only at its end that another has taken over."""
    first = drive()
    begun(first)
    first._ending.set()  # its thread hangs
    first._thread.join()
    log = drive("two", take_over=True).open_log()
    log.append(start("trial-0007"))
    first.close()
    assert there() == local(log)
    assert not [name for name in Objects(SWEEP).list("claims") if name.endswith(".ended")]


def test_the_next_driver_continues_the_log_without_the_disk(drive: Drive, tmp_path: Path) -> None:
    first = drive()
    log = begun(first)
    log.append_lines([line(1)])
    before = local(log)
    first.close()
    assert there() == before
    shutil.rmtree(tmp_path / "one")
    assert event_file(find_sweep(root_of(tmp_path, "one"), "a")).read_bytes() == before
    second = drive()
    assert second.claim.number == 2
    log = second.open_log()
    log.append_lines([line(2)])
    second.close()
    assert there() == before + f"{line(2)}\n".encode() == local(log)


def test_lines_of_this_machine_that_the_store_lacks_stay(drive: Drive, store: FolderStore) -> None:
    first, told = drive(), list[str]()
    log = begun(first)
    store.refuse()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "END_SECONDS", 0.1)
        log.append_lines([line(1)])
        with pytest.raises(StorageError, match="503"):
            first.close()
    before = local(log)
    store.before = lambda request, path: None
    with driven(first.folder, told.append, take_over=True) as second:
        assert local(some(second).open_log()) == before
    assert there() == before
    assert told == []


def test_other_machines_see_a_running_sweep(drive: Drive, tmp_path: Path) -> None:
    sweep = drive()
    begun(sweep)
    root = root_of(tmp_path, "other")
    wait_until(lambda: bool(Objects(SWEEP).read("summary.json.gz")), "the summary")
    assert is_driven(find_sweep(root, "a"))
    assert is_driven(sweep_folder(summaries(root), "a"))
    sweep.close()
    assert not is_driven(find_sweep(root, "a"))
    assert not is_driven(sweep_folder(summaries(root), "a"))
    Objects(SWEEP).delete(["summary.json.gz", "plan.json"])
    third = sweep_folder(summaries(root_of(tmp_path, "third")), "a")
    assert load_sweep(third).name == "a", "it is listed without a summary"
    (third / ELSEWHERE_FILE).touch()
    with driven(third, print, take_over=False):
        assert not (third / ELSEWHERE_FILE).exists(), "it is driven here"


def test_unreadable_and_unknown_sweeps_hide_no_others(drive: Drive, tmp_path: Path) -> None:
    begun(drive())
    Objects(f"{URL}/sweeps/begins").write("claims/x", b"")
    Objects(f"{URL}/sweeps/cut").write("spec.yaml", b"")
    Objects(f"{URL}/sweeps/cut").write("log/parts/000001-7", b"")
    Objects(f"{URL}/sweeps/left").write("log/000001-0", b"")
    root = root_of(tmp_path, "other")
    assert sweep_folder(summaries(root), "a").exists()
    rules = {"begins": "no sweep", "cut": "lacks the event log", "left": "has log but no spec.yaml"}
    for name, told in rules.items():
        with pytest.raises(SweepError, match=told):
            summaries(root, name)
    with pytest.raises(SweepError, match=f"no sweep 'aa' under {URL}; did you mean 'a'"):
        find_sweep(root, "aa")
    refresh_names(root)
    names = sorted(path.name for path in (root / "sweeps").iterdir())
    assert names == ["a", "begins", "cut", "left"]


def test_a_copy_of_another_sweep_of_this_name_is_replaced(drive: Drive, tmp_path: Path) -> None:
    begun(drive()).append(start("trial-0000"))
    folder = find_sweep(root_of(tmp_path, "other"), "a")
    stale = [folder / "checkpoints", folder / "sent.json"]
    stale[0].mkdir()
    stale[1].touch()
    find_sweep(root_of(tmp_path, "other"), "a")
    assert all(map(Path.exists, stale)), "the same sweep"
    event_file(folder).write_text('{"trial": null}\n')
    find_sweep(root_of(tmp_path, "other"), "a")
    assert not any(map(Path.exists, stale))


def test_a_resume_of_an_ended_sweep_writes_its_summary(drive: Drive) -> None:
    first = drive()
    begun(first).append(start("trial-0000"))
    first.close()
    store = Objects(SWEEP)
    whole = gzip.decompress(some(store.read("summary.json.gz")))
    store.write("summary.json.gz", b"of a driver that was killed")
    drive().close()  # it has no log of its own
    assert gzip.decompress(some(store.read("summary.json.gz"))) == whole
