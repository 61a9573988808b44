"""Tests of the claim of a single driver on a sweep in an object store."""

import os
from contextlib import nullcontext
from uuid import UUID

import pytest

from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import SweepError
from mtcon_ray.records.claim import Claim, is_held
from tests.data.folder_store import FolderStore

URL = "s3://bucket/root/sweeps/a"


def claimed(*, take_over: bool = False) -> Claim:
    return Claim(Objects(URL), "a", take_over=take_over)


def age(store: FolderStore, seconds: float) -> None:
    """Makes the only claim older than it is."""
    (path,) = (store.folder / "bucket/root/sweeps/a/claims").iterdir()
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_a_second_driver_is_refused_with_the_name_of_the_first(store: FolderStore) -> None:
    first = claimed()
    assert first.number == 1
    told = rf"'a' is already running, driven by process {os.getpid()} on .*--take-over"
    with pytest.raises(SweepError, match=told):
        claimed()
    assert not first.is_lost()
    assert len(store.names()) == 1, "the refused driver leaves nothing"


def test_a_claim_ends_with_its_driver_or_a_minute_after_it_was_renewed(store: FolderStore) -> None:
    first = claimed()
    age(store, 50)
    assert is_held(Objects(URL))
    with pytest.raises(SweepError, match="already running"):
        claimed()
    assert not first.is_lost()
    age(store, 20)
    assert not is_held(Objects(URL))
    second = claimed()
    assert (second.number, first.is_lost(), second.is_lost()) == (2, True, False)
    second.end()
    assert not is_held(Objects(URL))
    assert claimed().number == 3
    assert len(store.names()) == 1, "claims of the drivers before are removed"


def test_of_two_drivers_with_one_number_one_stays(store: FolderStore) -> None:
    """Both have looked before one of them wrote: a store has no lock."""
    first = claimed()
    Objects(URL).write(f"claims/000001-{'0' * 32}", b"{}")
    assert not first.is_lost()
    Objects(URL).write(f"claims/000001-{'f' * 32}", b"{}")
    assert first.is_lost()


@pytest.mark.parametrize("digit", "0f")
def test_of_two_drivers_that_begin_at_once_the_greater_id_stays(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, digit: str
) -> None:
    def after_the_other() -> UUID:
        Objects(URL).write(f"claims/000001-{digit * 32}", b"another")
        return UUID(int=1)

    monkeypatch.setattr("mtcon_ray.records.claim.uuid4", after_the_other)
    with pytest.raises(SweepError) if digit == "f" else nullcontext():
        assert not claimed().is_lost()
    assert len(store.names()) == 1


def test_strange_names_and_contents_are_no_claim(store: FolderStore) -> None:
    for name in ("claims/x", "claims/999999", "claims/000007-.ended"):
        Objects(URL).write(name, b"")
    assert claimed(take_over=True).number == 1
    Objects(URL).write(f"claims/000003-{'0' * 32}", b"\xff")
    with pytest.raises(SweepError, match="already running"):
        claimed()
