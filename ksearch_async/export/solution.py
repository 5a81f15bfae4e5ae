"""A kernel as a solution of FlashInfer-Bench: the JSON that upstream's tools build and rank."""

from __future__ import annotations

import msgspec

from evaluators.tasks.flashinfer.packing import solution_of
from evaluators.tasks.flashinfer.reading import VARIABLE, locate
from evaluators.tasks.flashinfer.trace_set import Definition, read_definition
from ksearch_async.errors import refusal
from ksearch_async.export.receipt import Winner, facts_of
from messages.base import ConfigError
from messages.tasks import Candidate, TaskSpec

AUTHOR = "ksearch"
_PREFIX = "flashinfer:"


def check_solution(task: TaskSpec, candidate: Candidate, selector: str) -> None:
    """Check that a kernel can be written as a solution, before anything is measured."""
    _solution_text(candidate, _definition(task, selector), "")


def write_solution(winner: Winner, selector: str) -> str:
    """Return a kernel as a solution's JSON."""
    return _solution_text(winner.candidate, _definition(winner.task, selector), "\n".join(facts_of(winner)))


def _definition(task: TaskSpec, selector: str) -> Definition:
    if task.source != "flashinfer":
        raise refusal(f"{task.name!r} is no task of FlashInfer-Bench", f"name one as the task: {_PREFIX}FOLDER#NAME")
    try:
        root, name, _ = locate(selector.removeprefix(_PREFIX))
        return read_definition(root, name)
    except ConfigError as error:
        hint = f"a solution is written by its definition's inputs and outputs: {VARIABLE}, or --task, says where it is"
        raise refusal(str(error), hint) from error


def _solution_text(candidate: Candidate, definition: Definition, description: str) -> str:
    name = f"{AUTHOR}_{candidate.language}_{candidate.candidate_id[:8]}"
    solution = solution_of(candidate, definition, name=name, author=AUTHOR, description=description or None)
    return msgspec.json.format(msgspec.json.encode(solution)).decode() + "\n"
