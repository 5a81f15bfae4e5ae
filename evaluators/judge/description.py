"""Descriptions of tasks, for coders and planners."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from evaluators.build.policy.operators import say_rules
from evaluators.hardware.target import platform_of
from evaluators.judge.check.terms import module_terms
from evaluators.judge.data.arena import total_bytes
from evaluators.judge.reference.operators import count_flops
from evaluators.judge.reference.problem import Problem
from evaluators.languages import support_of
from evaluators.languages.base import MODULE_RUNNERS, TORCH_RUNNERS, dtype_of, passed
from evaluators.languages.python import function_contract
from messages.base import Language
from messages.calls import CallForm, Number
from messages.tasks import DescribedWorkload, TaskDescription, TaskSpec

_NONE: Mapping[str, Problem] = MappingProxyType({})


def describe_problem(
    task: TaskSpec, problem: Problem, language: Language, workloads: Mapping[str, Problem] = _NONE
) -> TaskDescription:
    """Return the task's description for candidates of a language.

    Raises:
        ConfigError: the language does not support these tensors.
        ProblemError: candidates cannot be made like the model.
    """
    support = support_of(language, platform_of(problem.device))
    made = tuple(map(module_terms, workloads.values() or (problem,))) if support.runner in MODULE_RUNNERS else ()
    tensors, entry_point = problem.tensors, support.entry_point
    if support.runner in MODULE_RUNNERS and task.calling != "module":
        entry_point = task.entry_point or function_contract.ENTRY_POINT
    mode = "training mode, as constructed" if problem.trains else "eval mode"
    parts = (
        f"# Task `{task.name}`",
        f"Make this program's `Model.forward` fast on {support.runs_on}, with the same results.",
        "## Reference",
        f"```python\n{task.text.strip()}\n```",
        *(
            f"It imports `{file.path}`:\n\n```python\n{file.text.strip()}\n```"
            for file in task.files
            if not task.shown_files or file.path in task.shown_files
        ),
        *((_made_by(problem, workloads, mode),) if task.calling == "module" else ()),
        *(("## About it", task.notes) if task.notes else ()),
        "## Tensors",
        "\n\n".join(f"### Workload `{name}`\n\n{_table(each)}" for name, each in workloads.items()) or _table(problem),
        "## Calling contract",
        support.describe(tensors, problem.call, task.entry_point),
        *(("## Workloads", _say_workloads(task, is_module=support.runner in MODULE_RUNNERS)) if workloads else ()),
        "## Checks",
        _checks(task),
        *(("## Library calls", say_rules(task.rules)) if support.runner in TORCH_RUNNERS else ()),
    )
    return TaskDescription(
        task_id=task.task_id,
        name=task.name,
        language=language,
        tensors=tensors,
        prompt="\n\n".join(parts),
        entry_point=entry_point,
        bytes_moved=total_bytes(tensors),
        flops=count_flops(problem),
        workloads=tuple(
            DescribedWorkload(
                name=name, tensors=each.tensors, bytes_moved=total_bytes(each.tensors), flops=count_flops(each)
            )
            for name, each in workloads.items()
        ),
        modules=made,
        calls=_calls([*workloads.values()] or [problem]),
    )


def _calls(problems: list[Problem]) -> tuple[CallForm, ...]:
    """Return the call form of each workload; none if calls take only one tensor after the other."""
    found = [problem.call for problem in problems if problem.call is not None]
    return tuple(found) if len(found) == len(problems) else ()


def _made_by(problem: Problem, workloads: Mapping[str, Problem], mode: str) -> str:
    calls = dict.fromkeys(f"`Model(*{each.init_inputs!r})`" for each in workloads.values() or (problem,))
    which = " or ".join(calls) + (", by the workload," if len(calls) > 1 else "")
    return f"The model is made by {which} and runs in {mode}."


def _say_workloads(task: TaskSpec, *, is_module: bool) -> str:
    process = (
        "Each has a module of its own, made with its own arguments. One process calls them all, in any order: what is "
        "kept outside of a module must fit all of them."
        if is_module
        else "One process is called on all of them, in any order: what is kept from one call to the next must fit all. "
        "The shapes in the contract are those of the first; read them from what is given, or choose code by them."
    )
    held_out = (
        " Before it counts as the best it is also checked on shapes that are not told here (of the same ranks and "
        "dtypes): it must be right on any."
        if task.hidden
        else ""
    )
    return (
        f"There are {len(task.shown)} workloads, and one program must be right on each. {process} What counts is the "
        f"geometric mean of the speedups on them.{held_out}"
    )


def _checks(task: TaskSpec) -> str:
    """Describe the checks: kinds of input distributions, without numbers that a kernel could be tuned to."""
    return (
        "Every call, the timed ones too, has inputs that were never seen, and its outputs are compared with "
        f"the reference in float64 (tolerance profile `{task.tolerance.profile}`). Shapes and dtypes are "
        "always those above. Values are not always distributed as `get_inputs` draws them: some data is "
        "shifted (far from zero, too) or scaled, holds a few huge values, equal, sorted or tiny ones, or mostly zeros; "
        "integers are always as it draws them. Masks and whole numbers that it draws the same every time have other "
        "values in some calls. Parameters have other values in some calls. Infinities and NaNs must be "
        "where the reference has them."
    )


def _table(problem: Problem) -> str:
    lines = ["| index | tensor | role | shape | dtype |", "|---|---|---|---|---|"]
    inputs = outputs = 0
    for tensor in passed(problem.tensors, problem.call):
        if isinstance(tensor, Number):
            lines.append(f"| `inputs[{inputs}]` | `{tensor.name}` | number {tensor.value!r} | | {dtype_of(tensor)} |")
            inputs += 1
            continue
        if tensor.role == "output":
            index, outputs = f"outputs[{outputs}]", outputs + 1
        else:
            index, inputs = f"inputs[{inputs}]", inputs + 1
        lines.append(f"| `{index}` | `{tensor.name}` | {tensor.role} | {tensor.shape} | {tensor.dtype} |")
    return "\n".join(lines)
