"""Optimizers with their weight decay, and the learning rate as a pure function of the step."""

import math
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from mtcon_ray.methods import Method
from mtcon_ray.training.spec import TrainSpec


def make_optimizer(network: nn.Module, method: Method, spec: TrainSpec) -> Optimizer:
    """The spec's optimizer; the rate is 0 until `set_lr` gives each step its own.

    Decayed: the network's matrices and kernels (two axes or more). Not decayed: its biases and
    normalisation parameters, and everything that the method learns (decay would pull sigma
    towards 1). So there are two groups for each `lr_group` that the method names
    for the network's parameters, which for most is one, and then the method's own.

    It is a fused one on every device: fast, and the only kind that a flag on the device can stop.
    """
    split: dict[int, tuple[list[nn.Parameter], list[nn.Parameter]]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            decayed, kept = split.setdefault(method.lr_group(name), ([], []))
            (decayed if parameter.ndim >= 2 else kept).append(parameter)
    groups: list[dict[str, Any]] = []
    for index, (decayed, kept) in sorted(split.items()):
        # The first carries no mark: optimizers saved before there were others can be read.
        mark = {"lr_group": index} if index else {}
        groups.append({"params": decayed, "weight_decay": spec.weight_decay, **mark})
        groups.append({"params": kept, "weight_decay": 0.0, **mark})
    groups.append({"params": list(method.parameters()), "weight_decay": 0.0})
    # torch refuses an optimizer of nothing, such as of an encoder without parameters or heads.
    filled = [g for g in groups if g["params"]] or [{"params": [torch.zeros(0)]}]
    if spec.optimizer == "sgd":
        return SGD(filled, lr=0.0, momentum=spec.momentum, fused=True)
    kind: type[Adam] = {"adam": Adam, "adamw": AdamW}[spec.optimizer]
    return kind(filled, lr=0.0, betas=(spec.momentum, 0.999), fused=True)


def set_lr(optimizer: Optimizer, lr: float, scales: tuple[float, ...] = (1.0,)) -> None:
    """Give every group the rate of the next step, times the scale of its `lr_group`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * scales[group.get("lr_group", 0)]


def start_momentum(optimizer: Optimizer) -> None:
    """Give what meets its first gradient a momentum of 0, from which SGD starts as from none.

    A fused SGD takes momenta for all parameters of a group or for none, and in a later phase of
    training some may be new.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"] if group.get("momentum") else ():
            if parameter.grad is not None and "momentum_buffer" not in optimizer.state[parameter]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def peak_lr(spec: TrainSpec) -> float:
    """The rate after warm-up, scaled with the batch as `lr_scaling` says."""
    exponent = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[spec.lr_scaling]
    return spec.lr * math.pow(spec.batch_size / 256, exponent)


def lr_at(step: int, spec: TrainSpec, *, steps_per_epoch: int) -> float:
    """The learning rate of one step, counted from 0.

    Rises along a line that would be 0 one step before the first and meets the peak after
    warmup_epochs (they may end within a step), so that no step is lost to a rate of 0. Then it
    falls to peak * lr_final in the very last step: along a cosine (Loshchilov and Hutter 2017,
    arXiv:1608.03983, eq. 5, here per step), or by the same factor in every step.
    """
    peak = peak_lr(spec)
    warmup = spec.warmup * steps_per_epoch
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    last = spec.epochs * steps_per_epoch - 1
    progress = (step - warmup) / (last - warmup) if last > warmup else 0.0
    if spec.lr_schedule == "exponential":
        return peak * math.pow(spec.lr_final, progress)
    return peak * (spec.lr_final + (1 - spec.lr_final) * (1 + math.cos(math.pi * progress)) / 2)
