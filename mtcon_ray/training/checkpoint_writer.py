"""Writer of a training's checkpoints: at once, or on copies in one background thread."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from mtcon_ray.training import checkpoint

Epoch = TypeVar("Epoch")


class CheckpointWriter:
    """Writer of checkpoints, which are whole on disk when `join` has returned.

    If `background` is False, `save` returns only after the file is complete. Otherwise `save`
    copies the state to the host and returns, and a thread writes the copies in the order of the
    calls. After a failed write nothing more is written: last.pt must not name a missing model.pt.

    With `together` an epoch is yielded on all ranks of the training, and one rank writes.
    `ends_alone` is True for an epoch yielded on a single rank because of an error there.
    """

    def __init__(self, *, background: bool, together: bool = False) -> None:
        self.background = background
        self.ends_alone = False
        self._together = background and together
        self._thread = ThreadPoolExecutor(1, "mtcon-checkpoint") if background else None
        self._newest: Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if nothing is being written. `join` then returns or raises at once."""
        return self._newest is None or self._newest.done()

    def save(self, path: Path, state: Mapping[str, Any], *, previous: Path | None = None) -> None:
        """Writes a checkpoint as `checkpoint.save` does. `join` may raise its errors instead."""
        if self._thread is None:
            checkpoint.save(path, state, previous=previous)
            return
        copied, before = on_host(state), self._newest

        def write() -> None:
            if before is not None:
                before.result()  # raises its error
            checkpoint.save(path, copied, previous=previous)

        self._newest = self._thread.submit(write)

    def join(self) -> None:
        """Waits until all is on disk. Raises a failed write's error, also later."""
        if self._newest is not None:
            self._newest.result()
            self._newest = None

    def once_written(self, epochs: Iterable[Epoch | None]) -> Iterator[Epoch]:
        """Yields each epoch of a training when everything it has saved so far is on disk.

        `epochs` yields an epoch when it ends. It yields None at steps where an earlier epoch may
        be handed out, and training continues meanwhile. It must join and yield None before the
        next epoch is saved. Nothing is being written while an epoch is yielded or at the end.

        With `together` it must yield None on all ranks in the same step, when all are idle.
        """
        due: Epoch | None = None
        try:
            for epoch in epochs:
                due = due if epoch is None else epoch
                may_be_yielded = epoch is None or not self._together
                if due is not None and may_be_yielded and self.is_idle:
                    self.join()
                    yield due
                    due = None
        except Exception:
            self.join()
            if due is not None:  # it had ended before the error
                self.ends_alone = self._together
                yield due
            raise
        finally:
            self.join()
        if due is not None:
            yield due


def on_host(state: Any) -> Any:
    """Returns a copy of nested dicts, lists and tuples, with their tensors copied to the CPU.

    It shares no memory with the state, because an optimizer changes its tensors in place.
    """
    copied = _sent(state)
    if torch.cuda.is_initialized():
        torch.cuda.current_stream().synchronize()
    return copied


def _sent(state: Any) -> Any:
    """Returns the copy of `on_host`, which may not have arrived."""
    if isinstance(state, Tensor):
        if not (state.is_cuda and torch.cuda.is_available()):
            return state.detach().to("cpu", copy=True)
        # Pinned: else the driver copies it again, and waits for each tensor. When it is written,
        # torch keeps the memory for the next checkpoint.
        place = torch.empty_like(state, device="cpu", pin_memory=True)
        return place.copy_(state.detach(), non_blocking=True)
    if isinstance(state, dict):
        copied = copy(state)  # keeps the module versions, an attribute of a state_dict
        copied.update((name, _sent(value)) for name, value in state.items())
        return copied
    if isinstance(state, list | tuple):
        return type(state)(map(_sent, state))
    return state
