"""Prompts as planner and coder make them, for a task of the tests' own, told in the words of the evaluators' floor."""

from __future__ import annotations

from msgspec.structs import replace

from actors.coder.prompts import request_for
from evaluators.languages import support_of
from messages.base import Language
from messages.commands import WriteCandidate
from messages.tasks import Action, TaskDescription, TensorSpec
from tests.actors.llm.offline.references import REFERENCES, reference

TENSORS = (
    TensorSpec(name="x", role="input", shape=(37, 131), dtype="float32"),
    TensorSpec(name="gate", role="input", shape=(37, 131), dtype="float32"),
    TensorSpec(name="weight", role="parameter", shape=(131,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(37, 131), dtype="float32"),
)
ATTENTION = reference("x, gate):\n        return torch.softmax(x @ gate.t(), -1) @ gate * self.weight", "[]")
CONVOLUTION = reference("x, gate):\n        return F.conv1d(x, gate)", "[]")


def description(
    text: str = REFERENCES["rms_norm_with_gate"],
    *,
    name: str = "norm",
    language: Language = "cpp",
    tensors: tuple[TensorSpec, ...] = TENSORS,
) -> TaskDescription:
    """Return what models are told of a reference, by default one with the tensors above."""
    rows = "\n".join(f"| `{tensor.name}` | {tensor.role} | {tensor.shape} | {tensor.dtype} |" for tensor in tensors)
    parts = (
        f"# Task `{name}`",
        f"## Reference\n\n```python\n{text}\n```",
        f"## Tensors\n\n| tensor | role | shape | dtype |\n|---|---|---|---|\n{rows}",
        f"## Calling contract\n\n{support_of(language).describe(tensors)}",
    )
    return TaskDescription(
        task_id="t" * 32,
        name=name,
        language=language,
        tensors=tensors,
        prompt="\n\n".join(parts),
        entry_point=support_of(language).entry_point,
        bytes_moved=1,
    )


def of_several_workloads(*rows: int) -> TaskDescription:
    """Return what models are told of a task of several workloads, which differ in the rows of their tensors."""
    told = description()
    before, table, after = told.prompt.partition("| tensor |")
    lines, _, rest = (table + after).partition("\n\n")
    tables = [f"### Workload `w{count}`\n\n{lines.replace('(37, ', f'({count}, ')}\n" for count in rows]
    return replace(told, prompt="\n".join([before, *tables, rest]))


def write_job(title: str, words: str = "", **changes: object) -> WriteCandidate:
    """Return a job for an action."""
    fields: dict[str, object] = {
        "job_id": "r1-w1",
        "run_id": "r1",
        "branch_id": "b1",
        "language": "cpp",
        "mode": "apply",
        "task": description(),
        "action": Action(node_id="n3", title=title, description=words),
    }
    return WriteCandidate(**(fields | changes))  # type: ignore[arg-type]


def coder_prompt(job: WriteCandidate) -> str:
    """Return the prompt that the coder would send."""
    return request_for(job).prompt
