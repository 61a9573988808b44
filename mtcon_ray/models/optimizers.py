"""The optimizers of torch, without an import of torch's compiler.

torch decorates methods of its optimizers for the compiler `torch._dynamo`. The first call imports
the compiler, which takes each process of a trial 1.3 s and 150 MB. `inspect.unwrap` returns the
methods that are decorated.
"""

from inspect import unwrap

import torch
from torch import optim


class _Undecorated(optim.Optimizer):
    add_param_group = unwrap(optim.Optimizer.add_param_group)
    load_state_dict = unwrap(optim.Optimizer.load_state_dict)
    state_dict = unwrap(optim.Optimizer.state_dict)
    zero_grad = unwrap(optim.Optimizer.zero_grad)


class SGD(_Undecorated, optim.SGD):
    """Stochastic gradient descent."""

    step = torch.no_grad()(unwrap(optim.SGD.step))


class Adam(_Undecorated, optim.Adam):
    """Adam."""

    step = torch.no_grad()(unwrap(optim.Adam.step))


class AdamW(_Undecorated, optim.AdamW):
    """Adam with decoupled weight decay."""

    step = torch.no_grad()(unwrap(optim.AdamW.step))


class LBFGS(_Undecorated, optim.LBFGS):
    """L-BFGS. Its step is not decorated for the compiler."""
