"""What a coder and a planner are told about a task."""

from __future__ import annotations

from evaluators.judge.arena import total_bytes
from evaluators.judge.problem import Problem
from evaluators.languages import support_of
from messages.base import Language
from messages.tasks import TaskDescription, TaskSpec, TensorSpec


def describe_problem(task: TaskSpec, problem: Problem, language: Language) -> TaskDescription:
    """Return the task's description for candidates of a language.

    Raises:
        ConfigError: the language cannot be given these tensors.
    """
    support = support_of(language)
    tensors = problem.tensors
    mode = "training mode, as constructed" if problem.trains else "eval mode"
    parts = (
        f"# Task `{task.name}`",
        f"Make this program's `Model.forward` fast on {support.runs_on}, with the same results.",
        "## Reference",
        f"```python\n{task.text.strip()}\n```",
        f"The model is made by `Model(*{problem.init_inputs!r})` and runs in {mode}.",
        "## Tensors",
        _table(tensors),
        "## Calling contract",
        support.describe(tensors),
    )
    return TaskDescription(
        task_id=task.task_id,
        name=task.name,
        language=language,
        tensors=tensors,
        prompt="\n\n".join(parts),
        entry_point=support.entry_point,
        bytes_moved=total_bytes(tensors),
    )


def _table(tensors: tuple[TensorSpec, ...]) -> str:
    lines = ["| index | tensor | role | shape | dtype |", "|---|---|---|---|---|"]
    inputs = outputs = 0
    for tensor in tensors:
        if tensor.role == "output":
            index, outputs = f"outputs[{outputs}]", outputs + 1
        else:
            index, inputs = f"inputs[{inputs}]", inputs + 1
        lines.append(f"| `{index}` | `{tensor.name}` | {tensor.role} | {tensor.shape} | {tensor.dtype} |")
    return "\n".join(lines)
