"""The state of a model: parameters, buffers, and other tensors that its modules hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def state_of(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """List parameters, then buffers, then tensors that modules hold as plain attributes, each in module order."""
    plain = [
        (f"{path}.{name}" if path else name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    return [*model.named_parameters(), *model.named_buffers(), *plain]


def put_state(model: torch.nn.Module, state: Sequence[torch.Tensor]) -> None:
    """Copy values into parameters, buffers and other tensors of a model, in the order of `state_of`."""
    with torch.no_grad():
        for (_, own), value in zip(state_of(model), state, strict=True):
            own.copy_(value)


def share_parameters(model: torch.nn.Module, state: Sequence[torch.Tensor]) -> None:
    """Have a model compute with these very tensors as parameters; buffers, which it may change, are copied.

    But for what normalisations have seen in training, in eval mode: that differs from call to call, and is only read.
    """
    put_state(model, state)
    count = sum(1 for _ in model.parameters())
    for index, ((name, own), value) in enumerate(zip(state_of(model), state, strict=True)):
        if index < count or (not model.training and is_statistic(name)):
            own.data = value


def is_statistic(name: str) -> bool:
    """Say whether that is what torch's normalisations call what they have seen in training."""
    return name.rpartition(".")[2] in {"running_mean", "running_var"}


def say_changed(names: Sequence[str]) -> str:
    """Say that the reference changes its state, which no candidate's is compared with."""
    return f"the reference changes {', '.join(names)} in each call; what a candidate leaves there is not compared"
