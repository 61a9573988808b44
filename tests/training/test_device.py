"""Precision by device, images by row, and memory errors explained."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from mtcon_ray.errors import OutOfMemoryError
from mtcon_ray.training.device import ImageFeed, explain_out_of_memory, pick_autocast, settle

CPU = torch.device("cpu")


def test_precision_as_asked() -> None:
    """Only auto looks at the device."""
    assert pick_autocast("float32", CPU) is None
    assert pick_autocast("bfloat16", CPU) is torch.bfloat16
    assert pick_autocast("auto", CPU) in (None, torch.bfloat16)


def test_images_come_in_the_order_of_the_rows() -> None:
    """Rows are places in the whole store, not among those that are kept."""
    images = np.arange(6, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    images.flags.writeable = False
    feed = ImageFeed(images, np.array([1, 3, 5]), CPU)
    assert feed(np.array([5, 1])).tolist() == images[[5, 1]].tolist()


def test_images_that_were_read_ahead_are_those_of_the_rows() -> None:
    """Expected, expected wrongly, and not expected at all."""
    images = np.arange(6, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    feed = ImageFeed(images, np.arange(6), CPU, streams=True)
    for expected, asked in (([3, 1], [3, 1]), ([2, 2], [5, 4]), (None, [0])):
        if expected is not None:
            feed.expect(np.array(expected))
        assert feed(np.array(asked)).tolist() == images[asked].tolist()


def test_an_error_of_reading_ahead_is_raised_where_the_images_are_asked_for() -> None:
    """A disk that fails, say; here a row that is not there."""
    feed = ImageFeed(np.zeros((2, 1, 1, 3), np.uint8), np.arange(2), CPU, streams=True)
    feed.expect(np.array([7]))
    with pytest.raises(IndexError):
        feed(np.array([7]))


@pytest.mark.parametrize(("free", "streams"), [(3999, True), (4000, False)])
def test_images_stream_where_a_gpu_lacks_room_for_them(
    free: int, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tenths of what is free are theirs; what streams lies in pinned memory."""
    images = np.arange(100, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 10**6))
    monkeypatch.setattr(ImageFeed, "_copy", lambda feed: torch.empty(0))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: x + 100)  # to be told by
    feed = ImageFeed(images, np.arange(100), torch.device("cuda"))
    assert feed.streams is streams
    assert feed._read(np.array([7])).unique().tolist() == [107]


def test_images_that_are_kept_come_in_the_order_of_the_rows() -> None:
    """What a GPU does, here on the CPU."""
    images = np.random.default_rng(0).integers(0, 256, (9, 2, 2, 3), dtype=np.uint8)
    feed = ImageFeed(images, np.array([1, 3, 5, 8]), CPU)
    feed._resident = feed._copy()
    kept, images[:] = images.copy(), 0
    assert feed(np.array([8, 1, 5])).tolist() == kept[[8, 1, 5]].tolist()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_gpu_s_convolutions_are_chosen_by_trying(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step has the same shapes."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    settle(torch.device(device))
    assert torch.backends.cudnn.benchmark is (device == "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_images_are_kept_on_a_gpu_that_has_room() -> None:
    """The same rows come back without another copy."""
    device = torch.device("cuda")
    images = np.random.default_rng(0).integers(0, 256, (9, 2, 2, 3), dtype=np.uint8)
    feed = ImageFeed(images, np.array([1, 3, 5, 8]), device)
    images_then = images.copy()
    images[:] = 0
    assert feed(np.array([8, 1, 5])).cpu().numpy().tolist() == images_then[[8, 1, 5]].tolist()


def test_out_of_memory_is_a_trial_error_with_a_way_out() -> None:
    """The allocator's own first sentence stays."""
    with (
        pytest.raises(OutOfMemoryError, match=r"batch 64 must fit.*tried 2 GiB; lower it"),
        explain_out_of_memory("batch 64", "lower it"),
    ):
        raise torch.OutOfMemoryError("tried 2 GiB. GPU 0 has 1 GiB free")


def test_memory_that_is_freed_is_not_faulted_in_again() -> None:
    """In a process of its own: the allocator's setting is the process's."""
    code = """
import resource, torch
from mtcon_ray.training.device import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        torch.ones(2**21)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
torch.set_num_threads(1)
usual = faults()
keep_freed_memory()
faults()
print(usual, faults())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    usual, kept = map(int, done.stdout.split())
    assert kept < 0.1 * usual
