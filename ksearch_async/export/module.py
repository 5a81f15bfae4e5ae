"""Writes one importable module that holds a kernel, its reference, its receipt and a self-test.

Siblings, one per language (`cpp`, `cuda`, `triton`, `python`), each define

- `PARTS: tuple[str, ...]`: the files of `parts/` that call the kernel, after those that all languages share
- `language_facts(candidate: Candidate, target: Target) -> dict[str, object]`: values for `parts/facts.py`
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Protocol

from evaluators.judge.check.tolerances import bounds_of
from evaluators.languages.base import passed
from evaluators.languages.triton.contract import argument_names
from evaluators.tasks.workloads import standalone_text
from ksearch_async.errors import refusal
from ksearch_async.export.assembly import assemble
from ksearch_async.export.receipt import Winner, header_of, receipt_of
from messages.base import Language
from messages.calls import CallForm, ConstantPlace, ListOf, Number, Structure, TensorPlace, TupleOf
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
            "export the source for one of them: ksearch export RUN/best/SOURCE --task PROBLEM:WORKLOAD -o FILE",
        )
    if candidate.language not in _LANGUAGES:
        raise refusal(f"kernels in {candidate.language} cannot be exported", f"there are: {', '.join(_LANGUAGES)}")
    if candidate.language in _OF_ONE_FILE and len(candidate.files) > 1:
        raise refusal(
            f"this kernel has {len(candidate.files)} Python files, and one module can hold one",
            "put them together and export the file with --task",
        )


def check_call(task: TaskSpec, call: CallForm | None) -> None:
    """Accept a way of calling that a module's `forward` can have: tensors and numbers in, tensors out.

    Args:
        task: what is called.
        call: how; null: with tensors alone.

    Raises:
        ConfigError: it is another.
    """
    if call is None:
        return
    if call.calling == "destination":
        raise refusal(
            f"kernels for {task.name!r} write to outputs that they are given, and a module returns new ones",
            "take the source: ksearch best RUN --source",
        )
    returned = call.outputs.items if isinstance(call.outputs, ListOf | TupleOf) else (call.outputs,)
    odd = [one for one in call.arguments.items if not (isinstance(one, TensorPlace) or _is_number(one))]
    if odd or not all(isinstance(one, TensorPlace) for one in returned):
        raise refusal(
            f"{task.name!r} takes or returns more than tensors and numbers one after the other, and a module does not",
            "take the source: ksearch best RUN --source",
        )


def _is_number(one: Structure) -> bool:
    return isinstance(one, ConstantPlace) and isinstance(one.value, int | float)


def write_module(winner: Winner) -> str:
    """Return the module's text.

    Raises:
        ConfigError: as `check_exportable` and `check_call`.
    """
    check_exportable(winner.task, winner.candidate)
    check_call(winner.task, winner.call)
    sibling: _Sibling = import_module(f"ksearch_async.export.{winner.candidate.language}")
    given = passed(winner.tensors, winner.call)
    named = list(zip(argument_names(given), given, strict=True))
    inputs = [(name, one) for name, one in named if isinstance(one, Number) or one.role != "output"]
    outputs = [tensor for tensor in winner.tensors if tensor.role == "output"]
    returned = ", ".join(tensor.name for tensor in outputs)
    facts: dict[str, object] = {
        "TITLE": winner.task.name,
        "ENTRY_POINT": winner.candidate.entry_point,
        "SOURCES": {file.path: file.text for file in winner.candidate.files},
        "CALLING": winner.call.calling if winner.call is not None else "module",
        "ARGUMENTS": tuple((name, one.shape, one.dtype) for name, one in inputs if not isinstance(one, Number)),
        "NUMBERS": tuple((name, one.place, one.value) for name, one in inputs if isinstance(one, Number)),
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


def _forward(inputs: list[tuple[str, TensorSpec | Number]], outputs: list[TensorSpec]) -> str:
    """Return the function that people call."""
    last = max((at for at, (_, one) in enumerate(inputs) if not isinstance(one, Number)), default=-1)
    parameters = ", ".join(
        f"{name}: {type(one.value).__name__}{f' = {one.value!r}' if at > last else ''}"
        if isinstance(one, Number)
        else f"{name}: torch.Tensor"
        for at, (name, one) in enumerate(inputs)
    )
    kind = "torch.Tensor" if len(outputs) == 1 else f"tuple[{', '.join(['torch.Tensor'] * len(outputs))}]"
    arguments = "".join(f"        {name}: {_said(one)}.\n" for name, one in inputs)
    returned = "; ".join(f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in outputs)
    tensors = "".join(f"{name}, " for name, one in inputs if not isinstance(one, Number)).strip()
    numbers = ", ".join(name for name, one in inputs if isinstance(one, Number))
    check = f"    check_numbers({numbers})\n" if numbers else ""
    call = f"run(({tensors}))"
    return f'''def forward({parameters}) -> {kind}:
    """Compute what the reference computes, in new tensors.

    Args:
{arguments}
    Returns:
        {returned}.

    Raises:
        TypeError, ValueError: a tensor, or a number, is not as it was judged.
        RuntimeError: gradients are wanted, or the kernel cannot be built or failed.
    """
{check}    return {f"{call}[0]" if len(outputs) == 1 else call}'''


def _said(one: TensorSpec | Number) -> str:
    if isinstance(one, Number):
        return f"{one.value!r}, and no other: the kernel was judged with it"
    state = "" if one.role == "input" else f", the reference's {one.name}"
    return f"{one.shape} {one.dtype}{state}"
