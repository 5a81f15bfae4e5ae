"""Which torch operators the reference calls, and so which its candidates may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from evaluators.judge.dispatching import Dispatching
from evaluators.judge.problem import Problem
from evaluators.policy.operators import denied_operators
from messages.tasks import TaskRules


class _Recorder(Dispatching):
    """Remembers the names of the operators that are called, as they reach a backend."""

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
        """Note the operator, and run it."""
        self.names.add(function._schema.name)  # noqa: SLF001 - the only place where its full name stands
        run: Callable[..., object] = function
        return run(*args, **(kwargs or {}))


def denied_to_candidates(problem: Problem, rules: TaskRules) -> tuple[str, ...]:
    """Run the reference once and return the operators that a candidate's runner refuses.

    Raises:
        ProblemError: the reference fails.
    """
    if rules.library_calls == "allow":
        return ()
    with _Recorder() as recorder:
        problem.reference(problem.inputs(seed=0), problem.state)
    return denied_operators(recorder.names, rules, torch._C._dispatch_get_all_op_names())  # noqa: SLF001
