"""Jobs for coders, with a task of the tests' own."""

from __future__ import annotations

import msgspec

from messages.commands import WriteCandidate
from messages.tasks import Action, Candidate, SourceFile, TaskDescription

TASK = TaskDescription(
    task_id="t" * 32,
    name="scale",
    language="cpp",
    tensors=(),
    prompt="# Task scale\n\nMultiply x by two.",
    entry_point="ksearch_run",
    bytes_moved=8,
)
APPLY = WriteCandidate(
    job_id="r1-j1",
    run_id="r1",
    branch_id="b1",
    language="cpp",
    mode="apply",
    task=TASK,
    action=Action(node_id="n3", title="Vectorise the loop", description="Use SIMD lanes.", difficulty=2),
)


def program(marker: str) -> Candidate:
    """Return a candidate that holds `marker`."""
    text = f"// {marker}\nint ksearch_run(void) {{ return 0; }}"
    return Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text=text),))


def job(**changes: object) -> WriteCandidate:
    """Return the job above with some fields replaced."""
    return msgspec.structs.replace(APPLY, **changes)
