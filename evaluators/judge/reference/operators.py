"""Operators and floating-point operations of a reference, recorded while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from evaluators.build.policy.operators import denied_operators
from evaluators.judge.reference.problem import Problem, ProblemError
from messages.tasks import TaskRules


class Dispatching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that `torch.compile` may see: hiding it would import all of dynamo, which takes 2 s."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


_SEED = 0


def count_flops(problem: Problem) -> int:
    """Run the reference once more and return its counted operations, two per multiply-add.

    Elementwise work, reductions and recurrent layers are not counted, and masks do not reduce the count. Also 0 if
    torch's counter fails on a reference that works without it.
    """
    counter = _Counter()
    try:
        with counter:
            problem.reference(problem.inputs(seed=_SEED), problem.state)
    except ProblemError:
        return 0
    return counter.total


class _Counter(Dispatching):  # type: ignore[no-untyped-call]
    """Adds up the counts of torch's table of operators; other operators are split into their parts."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - its only name
        self._counts: Mapping[object, Callable[..., int]] = {**flop_registry, attention: _attention}
        self.total = 0

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload[..., Any],
        types: tuple[type, ...],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        given = dict(kwargs or {})
        count = self._counts.get(func.overloadpacket)
        if count is None:
            with self:
                parts: object = func.decompose(*args, **given)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **given)
        if count is not None:
            self.total += int(count(*args, **given, out_val=result))
        return result


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **__: object) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


class _Recorder(Dispatching):
    """Records the names of the operators that are called, as they reach a backend."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        function: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        self.names.add(function._schema.name)  # noqa: SLF001 - the only place where its full name stands
        run: Callable[..., object] = function
        return run(*args, **(kwargs or {}))


def denied_to_candidates(problem: Problem, rules: TaskRules) -> tuple[str, ...]:
    """Run the reference once and return the operators that a candidate's runner refuses."""
    if rules.library_calls == "allow":
        return ()
    with _Recorder() as recorder:
        problem.reference(problem.inputs(seed=0), problem.state)
    return denied_operators(recorder.names, rules, torch._C._dispatch_get_all_op_names())  # noqa: SLF001
