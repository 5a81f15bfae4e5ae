"""Writes one importable module that holds a kernel, its reference, its receipt and a self-test.

Siblings, one per language (`cpp`, `cuda`, `triton`, `python`), each define

- `PARTS: tuple[str, ...]`: the files of `parts/` that call the kernel, after those that all languages share
- `language_facts(candidate: Candidate, target: Target) -> dict[str, object]`: values for `parts/facts.py`
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Protocol

from evaluators.languages.triton.contract import argument_names
from evaluators.tasks.workloads import standalone_text
from evaluators.tolerances import bounds_of
from ksearch_async.export.assembly import assemble
from ksearch_async.export.receipt import Winner, header_of, receipt_of
from ksearch_async.refusals import refusal
from messages.base import Language
from messages.tasks import Candidate, Target, TaskSpec, TensorSpec

_LANGUAGES: tuple[Language, ...] = ("cpp", "cuda", "triton", "python")
_OF_ONE_FILE: tuple[Language, ...] = ("triton", "python")
_BEFORE = ("calling",)
_BEHIND = ("loading", "comparing", "checking")


class _Sibling(Protocol):
    PARTS: tuple[str, ...]

    def language_facts(self, candidate: Candidate, target: Target, /) -> dict[str, object]:
        """Return values for `parts/facts.py`."""


def check_exportable(task: TaskSpec, candidate: Candidate) -> None:
    """Accept a kernel that can be exported.

    Raises:
        ConfigError: it is a program, or in a form that cannot.
    """
    if task.source == "program":
        raise refusal(
            f"{task.name!r} is a plain Python program, not a kernel: there is nothing to put around it",
            "ksearch best RUN --source prints it",
        )
    if len(task.shown) > 1:
        raise refusal(
            f"{task.name!r} has {len(task.shown)} workloads, and a module is made for one",
            "export the source for one of them: ksearch export SOURCE --task PROBLEM:WORKLOAD",
        )
    if candidate.language not in _LANGUAGES:
        raise refusal(f"kernels in {candidate.language} cannot be exported", f"there are: {', '.join(_LANGUAGES)}")
    if candidate.language in _OF_ONE_FILE and len(candidate.files) > 1:
        raise refusal(
            f"this kernel has {len(candidate.files)} Python files, and one module can hold one",
            "put them together and export the file with --task",
        )


def write_module(winner: Winner) -> str:
    """Return the module's text.

    Raises:
        ConfigError: as `check_exportable`.
    """
    check_exportable(winner.task, winner.candidate)
    sibling: _Sibling = import_module(f"ksearch_async.export.{winner.candidate.language}")
    names = argument_names(winner.tensors)
    inputs = [(name, tensor) for name, tensor in zip(names, winner.tensors, strict=True) if tensor.role != "output"]
    outputs = [tensor for tensor in winner.tensors if tensor.role == "output"]
    returned = ", ".join(tensor.name for tensor in outputs)
    facts: dict[str, object] = {
        "TITLE": winner.task.name,
        "ENTRY_POINT": winner.candidate.entry_point,
        "SOURCES": {file.path: file.text for file in winner.candidate.files},
        "ARGUMENTS": tuple((name, tensor.shape, tensor.dtype) for name, tensor in inputs),
        "OUTPUTS": tuple((tensor.name, tensor.shape, tensor.dtype) for tensor in outputs),
        "BOUNDS": tuple(_bounds(winner.task, tensor) for tensor in outputs),
        "REFERENCE": _reference(winner.task),
        "RECEIPT": receipt_of(winner),
        **sibling.language_facts(winner.candidate, winner.target),
    }
    header = header_of(winner, f"forward({', '.join(name for name, _ in inputs)}) -> {returned}")
    return assemble(header, facts, _forward(inputs, outputs), (*_BEFORE, *sibling.PARTS, *_BEHIND), "program")


def _reference(task: TaskSpec) -> str:
    """Return the problem file, such that its functions can be called without arguments."""
    return standalone_text(task.text, task.workloads[0]) if task.workloads else task.text


def _bounds(task: TaskSpec, output: TensorSpec) -> tuple[float, float | None, bool]:
    if "float" not in output.dtype:
        return 0.0, 0.0, False
    bounds = bounds_of(task.tolerance, output.dtype).for_elements(math.prod(output.shape))
    return bounds.rtol, bounds.atol, bounds.is_either


def _forward(inputs: list[tuple[str, TensorSpec]], outputs: list[TensorSpec]) -> str:
    """Return the function that people call."""
    parameters = ", ".join(f"{name}: torch.Tensor" for name, _ in inputs)
    kind = "torch.Tensor" if len(outputs) == 1 else f"tuple[{', '.join(['torch.Tensor'] * len(outputs))}]"
    arguments = "".join(f"        {name}: {_said(tensor)}.\n" for name, tensor in inputs)
    returned = "; ".join(f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in outputs)
    names = ", ".join(name for name, _ in inputs)
    call = f"run(({names}))" if len(inputs) > 1 else f"run(({names},))"
    return f'''def forward({parameters}) -> {kind}:
    """Compute what the reference computes, in new tensors.

    Args:
{arguments}
    Returns:
        {returned}.

    Raises:
        TypeError, ValueError: a tensor is not as it was judged.
        RuntimeError: gradients are wanted, or the kernel cannot be built or failed.
    """
    return {f"{call}[0]" if len(outputs) == 1 else call}'''


def _said(tensor: TensorSpec) -> str:
    state = "" if tensor.role == "input" else f", the reference's {tensor.name}"
    return f"{tensor.shape} {tensor.dtype}{state}"
