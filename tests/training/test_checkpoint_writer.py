"""Tests of the checkpoint writer: copies, order, errors, and when an epoch is yielded."""

import errno
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
import torch
from torch import nn

from mtcon_ray.errors import StorageError
from mtcon_ray.training import checkpoint
from mtcon_ray.training.checkpoint_writer import CheckpointWriter, on_host

SECONDS = 30.0  # until a test that waits in vain fails


class Disk:
    """Stand-in for the disk: each write waits for a permit, and fails on names in `full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.permits, self.full, self.written = Semaphore(0), set[str](), list[str]()
        save = checkpoint.save

        def slow(path: Path, state: Any, **options: Any) -> None:
            assert self.permits.acquire(timeout=SECONDS)
            if path.name in self.full:
                raise StorageError.of(path, OSError(errno.ENOSPC, "No space left on device"))
            save(path, state, **options)
            self.written.append(path.name)

        monkeypatch.setattr(checkpoint, "save", slow)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.permits.release(10)


def test_a_copy_shares_nothing_with_the_state() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    network = network.to(memory_format=torch.channels_last)
    values: list[Any] = [torch.ones(2), (1, None, "a")]
    state = {"network": network.state_dict(), "list": values, "step": 7}
    copied = on_host(state)
    assert copied["list"][1:] == [(1, None, "a")]
    assert copied["step"] == 7
    for name, value in network.state_dict().items():
        assert torch.equal(copied["network"][name], value)
        assert copied["network"][name].stride() == value.stride()
        value.fill_(5)
        assert not torch.equal(copied["network"][name], value), name
    values.append(2)
    assert len(copied["list"]) == 2
    assert isinstance(copied["network"], OrderedDict)
    assert copied["network"]._metadata == network.state_dict()._metadata  # type: ignore[attr-defined]


def test_without_a_thread_a_checkpoint_is_on_disk_at_once(tmp_path: Path) -> None:
    writer = CheckpointWriter(background=False)
    writer.save(tmp_path / "last.pt", {"step": 1})
    assert writer.is_idle
    assert checkpoint.load(tmp_path / "last.pt")["step"] == 1


def test_the_thread_writes_what_the_state_was(tmp_path: Path, disk: Disk) -> None:
    writer, weights = CheckpointWriter(background=True), torch.zeros(3)
    writer.save(tmp_path / "model.pt", {"weights": weights})
    writer.save(tmp_path / "last.pt", {"weights": weights})
    weights += 1
    assert not writer.is_idle
    disk.permits.release(2)
    writer.join()
    assert writer.is_idle
    assert disk.written == ["model.pt", "last.pt"]
    for name in disk.written:
        assert torch.equal(checkpoint.load(tmp_path / name)["weights"], torch.zeros(3))


def test_nothing_is_written_after_a_write_that_failed(tmp_path: Path, disk: Disk) -> None:
    """last.pt must not name a best epoch whose model.pt is not there. The error stays."""
    writer = CheckpointWriter(background=True)
    disk.full.add("model.pt")
    disk.permits.release(3)
    writer.save(tmp_path / "model.pt", {})
    writer.save(tmp_path / "last.pt", {})
    for _ in range(2):
        with pytest.raises(StorageError, match=r"model\.pt must be writable, got No space left"):
            writer.join()
    writer.save(tmp_path / "last.pt", {})
    with pytest.raises(StorageError, match=r"model\.pt"):
        writer.join()
    assert disk.written == []


class Training:
    """Two epochs of four steps for `once_written`; the disk gets a permit before these steps."""

    def __init__(self, folder: Path, disk: Disk, *permits: int, together: bool = False) -> None:
        self.writer = CheckpointWriter(background=True, together=together)
        self.folder, self.disk, self.permits = folder, disk, permits
        self.step = 0
        self.error: BaseException | None = None  # raised in the second epoch

    def __iter__(self) -> Iterator[str]:
        return self.writer.once_written(self._epochs())

    def _epochs(self) -> Iterator[str | None]:
        for epoch in (1, 2):
            for _ in range(4):
                if self.step in self.permits:
                    self._permit()
                yield None
                self.step += 1
                if self.error is not None and self.step == 6:
                    self.disk.permits.release()
                    raise self.error
            if epoch == 2 and self.step in self.permits:
                self._permit()
            self.writer.join()
            yield None
            self.writer.save(self.folder / "last.pt", {"epoch": epoch})
            if epoch == 2:
                self.disk.permits.release()
            yield f"epoch {epoch}"

    def _permit(self) -> None:
        self.disk.permits.release()
        assert self.writer._newest is not None
        self.writer._newest.exception(SECONDS)


@pytest.mark.parametrize("step", [4, 6, 8])
def test_an_epoch_is_yielded_between_later_steps_when_it_is_on_disk(
    tmp_path: Path, disk: Disk, step: int
) -> None:
    """At the latest at the end of the next one."""
    training, found = Training(tmp_path, disk, step), []
    for epoch in training:
        assert training.writer.is_idle
        found.append((epoch, training.step, checkpoint.load(tmp_path / "last.pt")["epoch"]))
    assert found == [("epoch 1", step, 1), ("epoch 2", 8, 2)]


@pytest.mark.parametrize("together", [False, True])
def test_an_epoch_before_an_error_is_yielded_first(
    tmp_path: Path, disk: Disk, together: bool
) -> None:
    """On the rank that raises it alone, which it says."""
    training = Training(tmp_path, disk, together=together)
    training.error = KeyError("diverged")
    epochs = iter(training)
    assert next(epochs) == "epoch 1"
    assert training.step == 6
    assert training.writer.ends_alone == together
    with pytest.raises(KeyError, match="diverged"):
        next(epochs)


@pytest.mark.parametrize("error", [None, KeyError("diverged")])
def test_an_epoch_that_found_no_room_is_not_yielded(
    tmp_path: Path, disk: Disk, error: Exception | None
) -> None:
    training = Training(tmp_path, disk, 8)
    training.error = error
    disk.full.add("last.pt")
    with pytest.raises(StorageError, match=r"last\.pt must be writable"):
        next(iter(training))


def test_nothing_is_being_written_after_a_second_signal(tmp_path: Path, disk: Disk) -> None:
    training = Training(tmp_path, disk)
    training.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        list(training)
    assert training.writer.is_idle
    assert disk.written == ["last.pt"]
