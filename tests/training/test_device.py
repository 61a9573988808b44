"""Precision by device, images by row, and explained memory errors."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from mtcon_ray.errors import MemoryTakenError, OutOfMemoryError
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.testing import start
from mtcon_ray.training import batches, device as devices, trainer
from mtcon_ray.training.device import explain_out_of_memory
from tests.methods.cases import make_spec

CPU = torch.device("cpu")
NONE = np.array([], np.int64)
IMAGES = np.arange(100, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)


def test_precision_as_asked() -> None:
    """Only auto depends on the device."""
    assert devices.pick_autocast("float32", CPU) is None
    assert devices.pick_autocast("bfloat16", CPU) is torch.bfloat16
    assert devices.pick_autocast("float16", CPU) is torch.float16
    assert devices.pick_autocast("auto", CPU) in (None, torch.bfloat16)


def test_images_come_in_the_order_of_the_rows() -> None:
    """Rows index the whole cache of images, not the rows that the feed keeps."""
    feed = devices.ImageFeed(IMAGES, np.array([1, 3, 5]), CPU)
    assert feed(np.array([5, 1]), later=NONE).tolist() == IMAGES[[5, 1]].tolist()
    feed._resident = feed._copy()  # as on a GPU with room for them
    feed._images = np.zeros_like(IMAGES)
    assert feed(np.array([5, 1]), later=NONE).tolist() == IMAGES[[5, 1]].tolist()


def test_images_that_were_read_ahead_are_those_of_the_rows() -> None:
    """The images were not prefetched, prefetched, or prefetched for other rows."""
    feed = devices.ImageFeed(IMAGES, np.arange(6), CPU)
    feed.streams = True
    for asked, later in (([0], [3, 1]), ([3, 1], [2, 2]), ([5, 4], [0])):
        assert feed(np.array(asked), later=np.array(later)).tolist() == IMAGES[asked].tolist()


STREAMED = [
    (3999, 0, 1, True),
    (4000, 0, 1, False),
    # The allocator has reserved 500 bytes, of which 100 are used.
    (3599, 500, 1, True),
    (3600, 500, 1, False),
    # Of a GPU of 20,000 bytes at most the training's share counts, even if more is free.
    (15000, 0, 0.1999, True),
    (15000, 0, 0.2, False),
]


@pytest.mark.parametrize(("free", "left", "share", "streams"), STREAMED)
def test_images_stream_where_a_gpu_lacks_room_for_them(
    free: int, left: int, share: float, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images may use three tenths of the training's share, else they stream from pinned memory."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 20_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: left)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: left // 5)
    monkeypatch.setattr(devices.ImageFeed, "_copy", lambda feed: torch.empty(0))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: x + 100)  # marks pinned images
    feed = devices.ImageFeed(IMAGES, np.arange(100), torch.device("cuda"), share=share)
    assert feed.streams is streams
    assert feed._read(np.array([7])).unique().tolist() == [107]


@pytest.mark.parametrize(("gpus", "share"), [(0, 1.0), (0.25, 0.25), (2, 1.0)])
def test_a_training_that_shares_a_gpu_keeps_to_its_part_of_it(
    gpus: float, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its images, and with all of torch's memory. The first trainings would fill the GPU."""
    asked: list[float] = []
    monkeypatch.setattr(batches, "ImageFeed", lambda *_, share: asked.append(share))
    monkeypatch.setattr(trainer, "settle", lambda device, share: asked.append(share))
    start(with_values(make_spec("mtcon"), {"resources.gpus": gpus}), tmp_path / "store", tmp_path)
    assert asked == [share, share]


def test_images_stream_where_others_took_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process allocates memory between the query of free memory and the copy."""
    full = Mock(side_effect=torch.OutOfMemoryError("tried 2 GiB"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**6, 10**6))
    monkeypatch.setattr(devices.ImageFeed, "_copy", full)
    assert devices.ImageFeed(IMAGES, np.arange(2), torch.device("cuda")).streams


CUBLAS = ("CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED")
STATUSES = (*CUBLAS, "CUDNN_STATUS_ALLOC_FAILED")


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("tried 2 GiB. GPU 0 has 1 GiB free"),
    torch.AcceleratorError("CUDA error: out of memory (tried 2 GiB). Compile with", 2),
    *(RuntimeError(f"CUDA error: {status}, tried 2 GiB. When calling") for status in STATUSES),
    RuntimeError("FIND was unable to find an engine, tried 2 GiB"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_out_of_memory_is_a_trial_error_with_a_way_out(error: RuntimeError) -> None:
    """The first sentence of the original error is kept."""
    told = r"batch 64 does not fit.*tried 2 GiB\)?; lower it"
    with pytest.raises(OutOfMemoryError, match=told), explain_out_of_memory("batch 64", "lower it"):
        raise error


def test_memory_of_the_machine_may_be_too_small_too() -> None:
    told = r"the memory: .*DefaultCPU.* bytes; lower"
    with pytest.raises(OutOfMemoryError, match=told), explain_out_of_memory("batch 64", "lower it"):
        torch.empty(1 << 50)


GIGABYTE = 2**30


TAKEN = [
    # A quarter of 80 GiB is 20.
    (0.25, 17, 3, OutOfMemoryError),
    (0.25, 17, 2, MemoryTakenError),
    (0.25, 20, 0, OutOfMemoryError),
    # A trial that has the GPU alone has no neighbours that will end.
    (1.0, 17, 2, OutOfMemoryError),
]


@pytest.mark.parametrize(("share", "reserved", "free", "expected"), TAKEN)
def test_memory_that_neighbours_took_says_nothing_about_the_configuration(
    share: float, reserved: int, free: int, expected: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Sizes in GiB. The device has to hold the rest of the training's share."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda: share)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved * GIGABYTE)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free * GIGABYTE, 80 * GIGABYTE))
    with pytest.raises(expected) as raised, explain_out_of_memory("batch 64", "lower it"):
        raise torch.OutOfMemoryError("tried 2 GiB. GPU 0 has 1 GiB free")
    assert type(raised.value) is expected


def test_a_training_may_use_its_share_of_a_gpu_s_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks that an earlier training has left in torch's cache are freed before."""
    calls: list[Any] = []
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("emptied"))
    limit = "torch.cuda.set_per_process_memory_fraction"
    monkeypatch.setattr(limit, lambda *given: calls.append(given))
    devices.settle(CPU, 0.25)
    assert calls == []
    devices.settle(torch.device("cuda", 0), 0.25)
    devices.settle(torch.device("cuda"), 1.0)
    assert calls == ["emptied", (0.25, 0), "emptied", (1.0, None)]


def test_another_error_of_a_device_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="illegal"), explain_out_of_memory("a", "b"):
        raise RuntimeError("CUDA error: an illegal memory access")
