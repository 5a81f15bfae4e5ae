"""Small tasks, and kernels for them as torch functions: honest ones that differ from the reference, and wrong ones.

The wrong ones are watermarks of the checker: each stands for a class of mistakes or of cheats.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TypeAlias

import torch

from evaluators.judge.data.families import CheckData
from evaluators.judge.reference.problem import Problem, Tensors
from messages.tasks import TaskSpec, Tolerance

Kernel: TypeAlias = Callable[[Tensors, Tensors], torch.Tensor]
"""Inputs and state to the one output."""


def task(body: str, inputs: str, *, name: str = "task", init: str = "pass") -> TaskSpec:
    """Return a task whose forward has this body."""
    text = f"""
        import torch
        from torch.nn import functional as F

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                {init}

            def forward(self, x, *more):
                {body}

        def get_inputs():
            return [{inputs}]

        def get_init_inputs():
            return []
    """
    return TaskSpec(name=name, source="kernelbench", text=textwrap.dedent(text))


SOFTMAX = task("return x.softmax(dim=-1)", "torch.randn(64, 512)", name="softmax")
NORM = task(
    "return F.layer_norm(x, (256,), self.weight, self.bias, 1e-5)",
    "1.5 * torch.randn(64, 256) + 0.3",
    name="norm",
    init="self.weight = torch.nn.Parameter(1 + 0.2 * torch.randn(256));"
    " self.bias = torch.nn.Parameter(0.2 * torch.randn(256))",
)
SQUARE = task("return x @ self.weight.T", "torch.randn(96, 96)", name="square",
              init="self.weight = torch.nn.Parameter(torch.randn(96, 96) / 10)")  # fmt: skip
MASKED = task(
    "return x.masked_fill(torch.arange(64) > torch.arange(64)[:, None], float('-inf')) * 2",
    "torch.randn(64, 64)",
    name="masked",
)


def in_turn(x: torch.Tensor) -> torch.Tensor:
    """Sum rows from left to right, as a plain loop does, in the tensor's own dtype."""
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for column in range(x.shape[-1]):
        total = total + x[..., column]
    return total.unsqueeze(-1)


def softmax(inputs: Tensors, _: Tensors) -> torch.Tensor:
    x = inputs[0]
    powers = torch.exp2((x - x.amax(dim=-1, keepdim=True)) * 1.4426950408889634)
    return powers / in_turn(powers)


def norm(inputs: Tensors, state: Tensors) -> torch.Tensor:
    (x,), (weight, bias) = inputs, state
    centred = x - in_turn(x) / x.shape[-1]
    variance = in_turn(centred * centred) / x.shape[-1]
    return centred * torch.rsqrt(variance + 1e-5) * weight + bias


def square(inputs: Tensors, state: Tensors) -> torch.Tensor:
    total = torch.zeros(96, 96)
    for inner in range(96):
        total = total + inputs[0][:, inner : inner + 1] * state[0][:, inner]
    return total


def masked(inputs: Tensors, _: Tensors) -> torch.Tensor:
    keep = torch.arange(64)[:, None] >= torch.arange(64)
    return torch.where(keep, inputs[0] + inputs[0], float("-inf"))


HONEST: dict[str, tuple[TaskSpec, Kernel]] = {
    "softmax": (SOFTMAX, softmax),
    "norm": (NORM, norm),
    "square": (SQUARE, square),
    "masked": (MASKED, masked),
}


def through(dtype: torch.dtype, kernel: Kernel) -> Kernel:
    """Compute in another dtype."""
    return lambda inputs, state: kernel(
        tuple(tensor.to(dtype) for tensor in inputs), tuple(tensor.to(dtype) for tensor in state)
    ).float()


def after(kernel: Kernel, change: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    """Change what a kernel returns."""
    return lambda inputs, state: change(kernel(inputs, state))


def without(output: torch.Tensor, place: object) -> torch.Tensor:
    """Leave a part of an output at zero."""
    output[place] = 0  # type: ignore[index]
    return output


def _square(dtype: torch.dtype) -> Kernel:
    def product(inputs: Tensors, state: Tensors) -> torch.Tensor:
        return (inputs[0].to(dtype).float() @ state[0].to(dtype).float().T).contiguous()

    return product


def stale() -> Kernel:
    kept: list[torch.Tensor] = []

    def kernel(inputs: Tensors, state: Tensors) -> torch.Tensor:
        kept.append(softmax(inputs, state))
        return kept[0]

    return kernel


def weights_of_the_first_call() -> Kernel:
    kept: list[Tensors] = []

    def kernel(inputs: Tensors, state: Tensors) -> torch.Tensor:
        kept.append(tuple(tensor.clone() for tensor in state))
        return norm(inputs, kept[0])

    return kernel


WRONG: dict[str, tuple[TaskSpec, Callable[[], Kernel]]] = {
    "zeros": (SOFTMAX, lambda: after(softmax, torch.zeros_like)),
    "constant": (SOFTMAX, lambda: after(softmax, lambda out: torch.full_like(out, 1 / 512))),
    "shifted row": (NORM, lambda: after(norm, lambda out: out.roll(1, 0))),
    "missing tail": (NORM, lambda: after(norm, lambda out: without(out, (..., slice(-3, None))))),
    "missing row": (SOFTMAX, lambda: after(softmax, lambda out: without(out, -1))),
    "swapped axes": (SQUARE, lambda: after(square, lambda out: out.T.contiguous())),
    "transposed weight": (SQUARE, lambda: lambda inputs, state: square(inputs, (state[0].T,))),
    "off by 1e-3": (NORM, lambda: after(norm, lambda out: out * 1.001)),
    "half accumulation": (NORM, lambda: through(torch.float16, norm)),
    "bfloat16 accumulation": (SOFTMAX, lambda: through(torch.bfloat16, softmax)),
    "bfloat16 product": (SQUARE, lambda: _square(torch.bfloat16)),
    "half product": (SQUARE, lambda: _square(torch.float16)),
    "half result": (NORM, lambda: after(norm, lambda out: out.half().float())),
    "no maximum": (SOFTMAX, lambda: lambda inputs, _: inputs[0].exp() / in_turn(inputs[0].exp())),
    "no epsilon": (NORM, lambda: lambda inputs, state: norm((inputs[0] * 1e4,), state)),
    "NaN for infinity": (MASKED, lambda: after(masked, lambda out: torch.where(out.isinf(), float("nan"), out))),
    "large for infinity": (MASKED, lambda: after(masked, lambda out: out.clamp_min(-1e30))),
    "NaN everywhere": (SOFTMAX, lambda: after(softmax, lambda out: out * float("nan"))),
    "parameters ignored": (NORM, lambda: lambda inputs, _: norm(inputs, (torch.ones(256), torch.zeros(256)))),
    "parameters kept": (NORM, weights_of_the_first_call),
    "result kept": (SOFTMAX, stale),
    "only small inputs": (
        SOFTMAX,
        lambda: lambda inputs, state: softmax((inputs[0].clamp(-8, 8),), state),
    ),
}

LOOSE_LETS_THROUGH = {
    "off by 1e-3", "half accumulation", "bfloat16 accumulation", "bfloat16 product", "half product", "half result",
}  # fmt: skip
"""What a tolerance of 1e-2 or 2e-2 is there to let through."""


def fails_on(spec: TaskSpec, kernel: Kernel, *, families: tuple[str, ...] | None = None) -> str:
    """Return the first family on which a kernel is wrong; empty if it passes all."""
    problem = Problem(spec)
    data = (
        CheckData(problem, spec.tolerance, drawn=9, extra_s=60.0)
        if families is None
        else CheckData(problem, spec.tolerance, families=families, drawn=0, extra_s=0.0)
    )
    for each in data.sets():
        output = kernel(each.inputs, each.state)
        if bool(each.allowed[0].errors(output, each.expected[0]).wrong.any()):
            return each.family
    return ""


def with_profile(spec: TaskSpec, profile: str) -> TaskSpec:
    return TaskSpec(name=spec.name, source=spec.source, text=spec.text, tolerance=Tolerance(profile=profile))
