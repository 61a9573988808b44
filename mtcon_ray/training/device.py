"""Precision, memory and library settings of a device, and the images kept on it."""

import ctypes
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.batch import send
from mtcon_ray.errors import MemoryTakenError, OutOfMemoryError, SpecError

# Fraction of a training's part of the device memory that its images may take.
RESIDENT_SHARE = 0.3
# Messages about full memory with which torch raises a plain RuntimeError. CUDA's libraries allocate
# without torch's allocator, and torch's allocator for the CPU has its own message. cuBLAS is not
# initialised if its handle finds no room. cuDNN finds no engine with room for its workspace.
HOST_FULL = "DefaultCPUAllocator: can't allocate memory"
FULL = (
    "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED", "unable to find an engine", HOST_FULL,
)  # fmt: skip
CHUNK_ROWS = 4096

# Constants of glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3


def pick_autocast(precision: str, device: torch.device) -> torch.dtype | None:
    """Returns the dtype of autocast on this device, or None for float32.

    In float32 a GPU's convolutions round their factors to TF32, torch's default.
    Raises SpecError for bfloat16 on a GPU without support for it. A CPU emulates both half
    precisions slowly.
    """
    if precision == "float32":
        return None
    if precision == "float16":
        return torch.float16
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        if not fast and precision == "bfloat16":
            raise SpecError(
                f"train.precision bfloat16 must be supported by the GPU, got "
                f"{torch.cuda.get_device_name(device)}; use auto, float16 or float32"
            )
    else:
        fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    # Not float16: a training may diverge in float16 and in neither of the other two.
    return torch.bfloat16 if fast or precision == "bfloat16" else None


def device_name(device: torch.device) -> str:
    """Returns the GPU's model, e.g. "Tesla T4", or "CPU"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


class ImageFeed:
    """Stored images by row, on the device: resident there if they fit, else copied per call.

    images is uint8 [N, S, S, 3]. Only `rows` (ascending) may be requested. On a CPU they are read
    from the memory map and not prefetched, because a reading thread would compete for the cores
    used by training. `streams` is True on a GPU if the images do not fit. A thread then prefetches.
    `share` is the training's fraction of the device.
    """

    def __init__(
        self, images: np.ndarray, rows: np.ndarray, device: torch.device, *, share: float = 1.0
    ) -> None:
        self.device, self._images, self._rows = device, images, rows
        self._resident = self._copy_if_it_fits(share) if device.type == "cuda" else None
        self.streams = device.type == "cuda" and self._resident is None
        self._reader = ThreadPoolExecutor(1, "images")  # starts its thread when first used
        self._expected: tuple[np.ndarray, Future[Tensor]] | None = None

    def __call__(self, rows: np.ndarray, *, later: np.ndarray) -> Tensor:
        """Returns the images of these rows, uint8 [len(rows), S, S, 3], in their order.

        Starts to prefetch the rows `later` if it `streams`. The next call may ask for other rows.
        """
        if self._resident is not None:
            index = torch.from_numpy(np.searchsorted(self._rows, rows))
            return self._resident[send(index, self.device)]
        if self._expected is not None and np.array_equal(self._expected[0], rows):
            images = self._expected[1].result()  # raises errors of the reading thread
        else:
            images = self._read(rows)
        if self.streams:
            self._expected = later, self._reader.submit(self._read, later)
        return images.to(self.device, non_blocking=True)

    def _read(self, rows: np.ndarray) -> Tensor:
        images = torch.from_numpy(self._images[rows])
        return images.pin_memory() if self.device.type == "cuda" else images

    def _copy_if_it_fits(self, share: float) -> Tensor | None:
        num_bytes = len(self._rows) * self._images[0].nbytes
        num_free, num_total = torch.cuda.mem_get_info(self.device)
        # The driver also counts memory cached by this process's allocator as used, for example
        # from an earlier training. It is available to this training.
        num_free += torch.cuda.memory_reserved(self.device)
        num_free -= torch.cuda.memory_allocated(self.device)
        if num_bytes <= RESIDENT_SHARE * min(num_free, share * num_total):
            # Another process may have taken the memory in the meantime.
            with suppress(torch.OutOfMemoryError):
                return self._copy()
        return None

    def _copy(self) -> Tensor:
        shape = (len(self._rows), *self._images.shape[1:])
        resident = torch.empty(shape, dtype=torch.uint8, device=self.device)
        for start in range(0, len(self._rows), CHUNK_ROWS):
            chunk = torch.from_numpy(self._images[self._rows[start : start + CHUNK_ROWS]])
            resident[start : start + len(chunk)] = chunk.to(self.device)
        return resident


@contextmanager
def explain_out_of_memory(what: str, way_out: str) -> Iterator[None]:
    """Turns an out-of-memory error of the device or the host into an error with `way_out`.

    Raises MemoryTakenError instead if other processes use memory of the training's share.
    """
    try:
        yield
    except RuntimeError as error:
        sentences = str(error).split(". ")
        full = [one for one in sentences if any(words in one for words in FULL)]
        if not full and not isinstance(error, torch.OutOfMemoryError):
            raise
        if HOST_FULL not in str(error):
            _check_share_is_free()
        reason = (full or sentences)[0]
        raise OutOfMemoryError(f"{what} does not fit the memory: {reason}; {way_out}") from None


def _check_share_is_free() -> None:
    """Raises MemoryTakenError if the device lacks room for the rest of this process's share.

    `settle` sets the share. Torch's allocator has freed its unused blocks at an error.
    """
    share = torch.cuda.get_per_process_memory_fraction() if torch.cuda.is_initialized() else 1.0
    if share == 1.0:  # the device is not shared by trials
        return
    num_free, num_total = torch.cuda.mem_get_info()
    rest = share * num_total - torch.cuda.memory_reserved()
    if num_free < rest:
        raise MemoryTakenError(
            f"other processes use the GPU: {num_free / 2**30:.2f} GiB are free, but the rest of "
            f"this training's share of {share:.2f} is {rest / 2**30:.2f} GiB; raise "
            "resources.gpus to let fewer trials share the GPU"
        ) from None


def settle(device: torch.device, share: float = 1.0) -> None:
    """Configures this process's libraries for steps with repeating shapes.

    On a GPU, torch's allocator may use `share` of the memory. Memory cached by an earlier training
    in this process is freed.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(share, device.index)
        # cuDNN times its algorithms once for each shape and then uses the fastest.
        torch.backends.cudnn.benchmark = True
    else:
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory, because each step allocates the same blocks again.

    By default glibc returns blocks of megabytes to the system immediately. The page faults of
    allocating them again take as long as computing the views. No-op with other C libraries.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(MMAP_THRESHOLD, 2**25)  # the maximum of glibc
