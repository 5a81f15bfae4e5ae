"""The workloads of a judge's task: a problem and a bench for each, in one memory and under the same terms."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import torch

from evaluators.judge.candidate.bench import Bench
from evaluators.judge.candidate.runner import Launcher
from evaluators.judge.data.memory import make_buffers
from evaluators.judge.protocol import Limits
from evaluators.judge.reference.problem import Problem, ProblemError
from evaluators.languages.base import LanguageSupport
from messages.calls import CallForm, ConstantPlace, leaves_of
from messages.tasks import TaskSpec, Workload

_SHORT_CALL_NS = 100_000_000


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's problem, ready to run."""

    workload: Workload | None
    """None: the task names no workloads."""
    problem: Problem
    name: str = ""
    """Name of the workload, if there are several."""

    @property
    def is_hidden(self) -> bool:
        """True if it is hidden from authors of candidates."""
        return self.workload is not None and self.workload.hidden


def workloads_of(task: TaskSpec, *, hidden: bool) -> tuple[Workload | None, ...]:
    """Return a task's workloads, with or without the hidden ones; a single None for a task that names none."""
    return (task.workloads if hidden else task.shown) or (None,)


def load_problems(task: TaskSpec, device: str, *, hidden: bool) -> list[Loaded]:
    """Load a task's problem for each of its workloads, and run it once."""
    is_several = len(task.workloads) > 1
    found: list[Loaded] = []
    for workload in workloads_of(task, hidden=hidden):
        name = workload.name if workload is not None and is_several else ""
        try:
            found.append(Loaded(workload=workload, problem=Problem(task, device, workload), name=name))
        except ProblemError as error:
            if not name:
                raise
            raise ProblemError(f"workload {name!r}: {error}") from error
    shown = [loaded.problem for loaded in found if not loaded.is_hidden]
    for loaded in found:
        _require_one_signature(shown[0], loaded)
    return found


class Rooms(NamedTuple):
    """The benches of a task: shown ones, and all with hidden ones, in separate memory.

    A runner knows the places of its workloads' tensors and the size of the memory, and a crash could reveal these to
    the candidate's author. So its memory contains hidden workloads only if it is called on them.
    """

    shown: list[Bench]
    open_all: Callable[[], list[Bench]]
    is_hiding: bool


def open_rooms(
    loaded: Sequence[Loaded],
    support: LanguageSupport,
    launcher: Launcher,
    limits: Limits,
    *,
    threads: int,
    reference_ns: Sequence[int],
    keep: frozenset[int] = frozenset(),
) -> Rooms:
    """Return a bench per workload; arguments as for `Bench`."""

    def opened(numbers: Sequence[int]) -> list[Bench]:
        chosen = [loaded[number] for number in numbers]
        buffers = make_buffers([each.problem.tensors for each in chosen], chosen[0].problem.device)
        benches = [
            Bench(
                each.problem,
                support,
                launcher,
                limits,
                threads=threads,
                reference_ns=reference_ns[number],
                keep=keep,
                buffers=buffers[place],
                workload=each.name,
                number=place,
                is_hidden=each.is_hidden,
            )
            for place, (number, each) in enumerate(zip(numbers, chosen, strict=True))
        ]
        # One process is called on all of them: an operator of one reference is denied on all workloads.
        denied = tuple(dict.fromkeys(name for bench in benches for name in bench.terms.denied))
        for bench in benches:
            bench.terms = msgspec.structs.replace(bench.terms, denied=denied)
        return benches

    shown = [number for number, each in enumerate(loaded) if not each.is_hidden]
    return Rooms(opened(shown), lambda: opened(range(len(loaded))), is_hiding=len(shown) < len(loaded))


def choose_threads(problems: Sequence[Problem]) -> list[int]:
    """Compute on one thread if that is quick, since the judge shares the host with timings.

    Returns the approximate time of each reference, in ns.
    """
    default = torch.get_num_threads()
    torch.set_num_threads(1)
    took_ns: list[int] = []
    for problem in problems:
        inputs = problem.inputs(seed=0)
        begun = time.perf_counter_ns()
        problem.reference(inputs, problem.state)
        took_ns.append(time.perf_counter_ns() - begun)
    if max(took_ns) > _SHORT_CALL_NS:
        torch.set_num_threads(default)
    return took_ns


def gpu_reference_ns(problem: Problem) -> int:
    """Return the approximate warm latency of the reference on a GPU."""
    inputs = problem.inputs(seed=0)
    problem.reference(inputs, problem.state)
    torch.cuda.synchronize()
    begun = time.perf_counter_ns()
    problem.reference(inputs, problem.state)
    torch.cuda.synchronize()
    return time.perf_counter_ns() - begun


def _require_one_signature(first: Problem, loaded: Loaded) -> None:
    wanted, found = (
        [(spec.name, spec.role, spec.dtype, len(spec.shape)) for spec in problem.tensors]
        for problem in (first, loaded.problem)
    )
    if found != wanted:
        different = next((pair for pair in zip(wanted, found, strict=False) if pair[0] != pair[1]), None)
        what = f"{different[1]} where the first has {different[0]}" if different else f"{len(found)} tensors"
        raise ProblemError(f"workload {loaded.name!r} has other tensors than the first: {what}; shapes may differ only")
    forms = [(_kinds_in(problem.call)) for problem in (first, loaded.problem)]
    if forms[0] != forms[1]:
        raise ProblemError(
            f"workload {loaded.name!r} has other arguments than the first: numbers and texts may differ in their "
            "values only"
        )


def _kinds_in(call: CallForm | None) -> list[str]:
    if call is None:
        return []
    leaves = leaves_of(call.arguments)
    return [type(leaf.value if isinstance(leaf, ConstantPlace) else leaf).__name__ for leaf in leaves]
