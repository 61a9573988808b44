"""A simulated GPU, on which whole trainings run without a computation.

Its tensors are torch's fake tensors, with a shape, a dtype and a device but no values. Operations
that mix them with CPU tensors, or dtypes that autocast would not mix, fail as on a GPU. Operations
on CPU tensors are executed. Values read from the GPU are zero, True, or noise.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from mtcon_ray.data import views

GPU = torch.device("cuda", 0)
MOVES = {"to", "_to_copy", "copy_"}
BY_INDEX = {"index", "index_put_"}
SIZES = {"masked_select", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
# Operations that fake tensors accept with mixed dtypes, but a GPU refuses.
PRODUCTS = {
    *("mm", "bmm", "mv", "dot", "addmm", "addmm_", "addmv", "baddbmm", "baddbmm_"),
    *("convolution", "convolution_backward"),
}
GIGABYTE = 2**30
PINNED = "is_pretended_pinned"


class Read(Exception):
    """A forbidden device synchronisation; the message is the operation's name."""


class Pretence(TorchDispatchMode):
    """Dispatch mode that executes CPU operations and simulates those on the GPU.

    While `reads` is False, operations that synchronise with the GPU raise Read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        if not any(map(_is_there, leaves)):
            with _disable_current_modes():
                return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            dtypes = {x.dtype for x in leaves if isinstance(x, Tensor)}
            assert len(dtypes) == 1, (name, dtypes)
        if name.startswith("_fused_"):  # a fused optimizer's step has no fake implementation
            assert {x.device for x in leaves if isinstance(x, Tensor)} == {GPU}, name
            return None
        if name in SIZES:
            self._read(name)
        if name in ("_local_scalar_dense", "is_nonzero", "equal"):
            self._read(name)
            return args[0].dtype == torch.bool
        if name == "nonzero":
            self._read(name)
            return args[0].new_zeros(args[0].numel(), args[0].dim(), dtype=torch.int64)
        if name in BY_INDEX:
            self._check_places(args[0], args[1])
        if name in BY_INDEX and (masks := [x for x in args[1] if x is not None and _is_mask(x)]):
            self._read(name)
            return self._by_mask(args[0], args[1], masks) if name == "index" else args[0]
        if name in MOVES and (moved := self._moved(name, args, kwargs, leaves)) is not None:
            return moved
        return func(*args, **kwargs)

    def _moved(self, name: str, args: Any, kwargs: Any, leaves: list[Any]) -> Tensor | None:
        """Returns the result of a copy between devices; None if the operation is no such copy."""
        target: Tensor = args[0]
        source = args[1] if name == "copy_" else target
        device = next((x for x in leaves if isinstance(x, torch.device)), target.device)
        if source.device.type == device.type:
            return None
        dtype = kwargs.get("dtype") or target.dtype
        if source.device == GPU:
            self._read(name)
            with _disable_current_modes():
                noise = torch.rand(source.shape).to(dtype)
                return target.copy_(noise) if name == "copy_" else noise
        if name == "copy_":
            self._read(name)
            return target
        if not (kwargs.get("non_blocking") and getattr(source, PINNED, False)):
            self._read(name)
        return torch.empty_strided(source.shape, source.stride(), dtype=dtype, device=GPU)

    def _by_mask(self, x: Tensor, indices: Sequence[Tensor | None], masks: list[Tensor]) -> Tensor:
        """Returns all elements: the number that a mask selects is unknown."""
        (mask,) = masks
        assert mask.device == x.device
        first = next(i for i, each in enumerate(indices) if each is mask)
        return x.flatten(first, first + mask.dim() - 1).clone()

    def _check_places(self, x: Tensor, indices: Sequence[Tensor | None]) -> None:
        """Checks the devices of indices: CPU indices of a GPU tensor are copied, not vice versa."""
        if any(i is not None and i.device != x.device for i in indices):
            assert x.device == GPU, "what lies on the CPU is indexed from the GPU"
            self._read("index")

    def _read(self, name: str) -> None:
        if not self.reads:
            raise Read(name)


def _is_there(x: object) -> bool:
    return isinstance(x, FakeTensor) or (isinstance(x, torch.device) and x.type == "cuda")


def _is_mask(x: Tensor) -> bool:
    return x.dtype == torch.bool


@contextmanager
def pretended_gpu(
    monkeypatch: pytest.MonkeyPatch, *, free: int = 64 * GIGABYTE
) -> Iterator[Pretence]:
    """Yields a simulated GPU with `free` bytes of free memory."""
    to = nn.Module.to
    pretence = Pretence()

    def converted(module: nn.Module, *args: Any, **options: Any) -> nn.Module:
        """Ignores memory formats, which fake parameters do not support."""
        return module if "memory_format" in options else to(module, *args, **options)

    def tolist(x: FakeTensor) -> Any:
        return x.cpu().tolist()

    with monkeypatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True), pretence:
        # Where there is a GPU, Triton would run on it, on addresses that fake tensors do not have.
        patch.setattr(views, "view_kernel", lambda device: None)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda **options: True)
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 * GIGABYTE))
        patch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: None)
        patch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
        patch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        patch.setattr(Tensor, "pin_memory", pinned)
        patch.setattr(Tensor, "backward", backward)
        patch.setattr(torch.autograd, "grad", gradient_of)
        patch.setattr(FakeTensor, "tolist", tolist)
        patch.setattr(FakeTensor, "data_ptr", lambda x: 0)  # deepcopy calls it
        patch.setattr(nn.Module, "to", converted)
        yield pretence


def pinned(x: Tensor) -> Tensor:
    """Returns a copy that counts as pinned: copying it to the GPU does not synchronise."""
    copy = x.clone()
    setattr(copy, PINNED, True)
    return copy


def backward(root: Tensor, gradient: Tensor | None = None) -> None:
    """Computes gradients as Tensor.backward does, whose engine would need a real GPU."""
    assert root.grad_fn is not None
    gradients: dict[Any, dict[int, Tensor]] = defaultdict(dict)
    gradients[root.grad_fn][root.output_nr] = (
        torch.ones_like(root) if gradient is None else gradient
    )
    awaited = _num_users(root.grad_fn)
    ready = [root.grad_fn]
    while ready:
        node = ready.pop()
        for (user, index), found in _step(node, gradients.pop(node, {})):
            if found is not None:
                meta = user._input_metadata[index]
                assert found.device == meta.device, (node, user, found.device, meta.device)
                fitting = found.sum_to_size(meta.shape).to(meta.dtype)
                before = gradients[user].get(index)
                gradients[user][index] = fitting if before is None else before + fitting
            awaited[user] -= 1
            if not awaited[user]:
                ready.append(user)


def gradient_of(root: Tensor, leaf: Tensor) -> tuple[Tensor]:
    """Returns what torch.autograd.grad does for one leaf, which must have no gradient yet."""
    assert leaf.grad is None
    backward(root)
    found, leaf.grad = leaf.grad, None
    assert found is not None
    return (found,)


def _num_users(root: Any) -> dict[Any, int]:
    """Returns the number of gradients that each node below the root receives."""
    awaited: dict[Any, int] = defaultdict(int)
    seen, stack = {root}, [root]
    while stack:
        for user, _ in stack.pop().next_functions:
            if user is not None:
                awaited[user] += 1
                if user not in seen:
                    seen.add(user)
                    stack.append(user)
    return awaited


@torch.no_grad()
def _step(node: Any, found: dict[int, Tensor]) -> list[tuple[tuple[Any, int], Tensor | None]]:
    """Returns the gradients that a node passes on, with their receivers; a leaf accumulates."""
    users = [(user, index) for user, index in node.next_functions if user is not None]
    if not found:
        return [(user, None) for user in users]
    given = [found.get(index) for index in range(len(node._input_metadata))]
    if type(node).__name__ == "AccumulateGrad":
        leaf, (gradient,) = node.variable, given
        assert gradient is not None
        leaf.grad = gradient.detach().clone() if leaf.grad is None else leaf.grad + gradient
        return []
    is_ours = isinstance(node, BackwardCFunction)
    handed = node.apply(*given) if is_ours else node(*given)
    handed = handed if isinstance(handed, tuple) else (handed,)
    # A custom autograd.Function returns a gradient for each of its arguments, also for numbers;
    # torch's own nodes return gradients for tensors only.
    asked = node.needs_input_grad if is_ours else [user for user, _ in node.next_functions]
    wanted = [x for x, is_asked in zip(handed, asked, strict=True) if is_asked]
    return list(zip(users, wanted, strict=True))
