"""`ksearch check-task`: checks that a task can tell a kernel from a trick, before any work on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from shlex import quote
from typing import Annotated

import anyio
import msgspec
from cyclopts import Parameter

from evaluators.tasks import reference_candidate
from evaluators.tasks.own.document import Draft
from evaluators.tasks.own.drafts import accept_draft, draft_of
from ksearch_async.cli import exits
from ksearch_async.cli.eval import as_object
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.waiting import explained
from ksearch_async.errors import refusal
from ksearch_async.evaluation.judging import Judge, open_judge
from ksearch_async.evaluation.settings import Evaluation
from ksearch_async.fleet.workers import find_target, read_task, with_library_calls
from ksearch_async.follow.logs import configure_logs
from ksearch_async.settings.run_config import RunConfig
from ksearch_async.views.terminal import note, put_json, put_lines, terminal_width
from ksearch_async.views.text import Column, table_lines
from messages.base import Language
from messages.tasks import Influence, Intake, TaskDescription, TaskSpec, TensorSpec
from messages.verdicts import Measured, Outpaced, Unstable

_TENSORS = (Column("tensor"), Column("role"), Column("shape"), Column("dtype", rank=1), Column("changed alone"))
_RIGHT = (Measured, Outpaced, Unstable)
"""Statuses of correct candidates."""
_ANSWERS = (Column("answer that computes nothing"), Column("check"), Column("wrong elements", rank=1))


def check_task_command(
    task: str,
    /,
    *,
    device: str = "cpu",
    tolerance: str = "strict",
    accept: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> int:
    """Check whether a task can tell a kernel from an answer that computes nothing, and evaluate its own reference.

    Args:
        task: A bundled problem's name (NAME or NAME:gpu), a problem file in KernelBench's format, a folder with a
            task.toml, or SOURCE:….
        device: Device on which the reference runs: `cpu`, or `cuda:0`.
        tolerance: How far outputs may differ from the reference: `strict`, or the rule of another harness:
            `kernelbench`, `flashinfer`, `gpumode:RTOL,ATOL`.
        accept: Approve a task that a model drafted (ksearch new-task --from), so that it can be searched on. No effect
            if the task is refused or its reference is wrong.
        as_json: Print one JSON object.
    """
    configure_logs()
    draft = draft_of(task)
    if accept and draft is None:
        raise refusal(f"--accept is for tasks that a model drafted, and {task!r} is not a draft", "leave it out")
    found = examine_task(task, device=device, tolerance=tolerance)
    if accept and found.may_be_accepted:
        accept_draft(task)
    if as_json:
        put_json(found.as_object() | ({} if draft is None else {"accepted": accept and found.may_be_accepted}))
    else:
        put_lines(found.lines())
    if draft is not None:
        note(_about_draft(task, draft, found, is_accepted=accept and found.may_be_accepted))
    return found.exit_code


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """Findings about a task."""

    description: TaskDescription
    intake: Intake
    itself: Evaluation | None
    """Result of the reference as a candidate; null: the task is refused, and the reference was not evaluated."""

    @property
    def may_be_accepted(self) -> bool:
        """Return True if a person may accept the task: it is not refused, and its reference is right."""
        return self.itself is not None and isinstance(self.itself.verdict, _RIGHT)

    @property
    def exit_code(self) -> int:
        """Of commands that show it."""
        return exits.FOUND if self.intake.fitness == "fit" and self.may_be_accepted else exits.NOT_FOUND

    def lines(self) -> Iterator[str]:
        """Yield it as people read it."""
        description, intake = self.description, self.intake
        yield f"task       {description.name}"
        yield f"tensors    {len(description.tensors)}, together {description.bytes_moved / 2**20:,.1f} MiB"
        if intake.reference_us is not None:
            yield f"reference  about {intake.reference_us:,.0f} us (eager; the judge is in no hurry)"
        yield f"tolerance  {intake.tolerance}"
        yield ""
        influence = {one.tensor: one for one in intake.influences}
        rows = [
            [
                one.name,
                one.role,
                f"({', '.join(map(str, one.shape))})",
                one.dtype,
                _effect(influence.get(one.name), one),
            ]
            for one in description.tensors
        ]
        yield from table_lines(_TENSORS, rows, width=terminal_width())
        if intake.answers:
            yield ""
            answers = [
                [one.name, "PASSES" if one.passes else "fails", f"{one.wrong_share:.0%}"] for one in intake.answers
            ]
            yield from table_lines(_ANSWERS, answers, width=terminal_width())
        yield ""
        if self.itself is not None:
            yield f"itself     {_said_of(self.itself)}"
        yield f"verdict    {intake.fitness}"
        yield from (f"  {finding}" for finding in intake.findings)

    def as_object(self) -> dict[str, object]:
        """Return it as scripts read it."""
        told = self.description
        known = {"task": told.name, "task_id": told.task_id, "bytes_moved": told.bytes_moved, "tensors": told.tensors}
        itself = None if self.itself is None else as_object(self.itself)
        return known | msgspec.structs.asdict(self.intake) | {"itself": itself}


def examine_task(task: str, *, device: str, tolerance: str) -> Examined:
    """Look at a task, and evaluate its reference as a candidate unless it is refused."""
    return anyio.run(_examined, read_task(RunConfig(task=task, tolerance=tolerance)), device)


def _about_draft(task: str, draft: Draft, found: Examined, *, is_accepted: bool) -> str:
    if is_accepted:
        return f"accepted: ksearch run {quote(task)} searches on it"
    if not found.may_be_accepted:
        return f"drafted by {draft.model}, and not to be accepted like this: edit it, or draft another"
    return f"drafted by {draft.model}; read its reference, then: ksearch check-task {quote(task)} --accept"


async def _examined(task: TaskSpec, device: str) -> Examined:
    """Run the reference, try trivial answers, and evaluate the reference as a candidate, all with the same processes.

    Trivial answers that were checked before are not checked again. As a candidate it may call what a reference calls.
    """
    language: Language = "python"  # any language finds the same, and this one needs no compiler
    await find_target(task, language, device)
    allowed = with_library_calls(task, "allow", "")
    async with open_judge(allowed, device=device, language=language, role="baseline") as judge:
        async with explained(_description(judge)) as description:
            pass
        intake = description.intake or Intake(fitness="fit")
        itself = None
        if intake.fitness != "refused":
            note("the reference, as a candidate: building, checking and timing ...")
            itself = await judge.evaluate(reference_candidate(task))
        return Examined(description=description, intake=intake, itself=itself)


@asynccontextmanager
async def _description(judge: Judge) -> AsyncIterator[TaskDescription]:
    yield await judge.describe()


def _said_of(itself: Evaluation) -> str:
    if not isinstance(itself.verdict, _RIGHT):
        return f"{itself.fate}: {itself.reason}"
    if (interval := itself.speedup_interval) is None:
        return "right, and not timed here"
    return f"right, at {interval[0]:.2f}x to {interval[1]:.2f}x of its own speed"


def _effect(influence: Influence | None, tensor: TensorSpec) -> str:
    if influence is None:
        return "" if tensor.role == "output" else "not looked at"
    if influence.matters is None:
        return f"not looked at: {influence.why_not}"
    return f"moves {influence.moved_share:.0%} of the outputs" if influence.matters else "moves nothing"


def _shape(tensor: TensorSpec) -> str:
    return f"({', '.join(map(str, tensor.shape))})"
