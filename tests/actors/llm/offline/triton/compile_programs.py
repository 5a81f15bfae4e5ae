"""Run as a program: writes programs for references, compiles them for sm_90, and prints what the compiler said.

Standard input: JSON with `cases`, a list of (name, reference, plan). Standard output: JSON, by name: why it does not
compile; empty if it does.
"""

from __future__ import annotations

import json
import sys

import anyio

from evaluators.languages.triton.ahead import compile_ahead
from messages.tasks import Candidate, SourceFile
from tests.actors.llm.offline.triton.run_programs import written


async def compile_all(cases: list[tuple[str, str, str]]) -> dict[str, str]:
    """Compile all cases, two at a time."""
    reasons: dict[str, str] = {}
    limit = anyio.CapacityLimiter(2)

    async def compile_one(name: str, reference: str, plan: str) -> None:
        problem, source = written(reference, plan)
        files = (SourceFile(path="kernel.py", text=source),)
        async with limit:
            candidate = Candidate(language="triton", entry_point="ksearch_run", files=files)
            reasons[name] = (await compile_ahead(candidate, problem.tensors)).reason

    async with anyio.create_task_group() as tasks:
        for case in cases:
            tasks.start_soon(compile_one, *case)
    return reasons


if __name__ == "__main__":
    sys.stdout.write(json.dumps(anyio.run(compile_all, json.load(sys.stdin)["cases"])))
