"""Reads prompts as a model would: by their headings, fences and tables, not by the structs they were made from.

Lenient about the text around facts, strict about the facts: a missing fact is a `NoRuleError` that names it.
"""

from __future__ import annotations

import ast
import re
from math import prod
from typing import Literal, TypeAlias

import msgspec

from actors.llm.offline.cpp.codegen import Contract as CppContract
from actors.llm.offline.stages import NoRuleError, TensorInfo
from actors.llm.offline.triton.codegen import Contract as TritonContract

Contract: TypeAlias = CppContract | TritonContract
"""A calling contract, which also gives the language."""

_FENCE = re.compile(r"^(`{3,})([^`\n]*)\n(.*?)\n\1`*[ \t]*$", re.MULTILINE | re.DOTALL)
_WORKLOAD = re.compile(r"^### Workload `([^`]*)`$", re.MULTILINE)
_NUMBER_CELLS = 5
_ROLE = re.compile(r"^(input|parameter|buffer|output)$")
_SHAPE = re.compile(r"^\(([\d, ]*)\)$")
_HEADER = re.compile(r'(extern\s+"C"[^;{]*?\([^;{]*?\))\s*[;{]', re.DOTALL)
_POINTERS = re.compile(r"void\s*\*\s*(?:const\s*)?\*\s*(?:const\s*)?(?P<name>\w+)")
_STREAM = re.compile(r"void\s*\*\s*stream\b")
_COMMENT = re.compile(r"//[^\n]*")
_RULED_OUT = frozenset({"forbidden by a person", "below a forbidden node"})
_FAVOURED = re.compile(r"pinned by a person|a person adds \+")
_FUNCTION = re.compile(r"def (?P<name>ksearch_run)\((?P<arguments>[^)]*)\)")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task's part of a prompt."""

    source: str
    """The reference program."""
    tensors: tuple[TensorInfo, ...]
    """Of several workloads, the first one's."""
    workloads: tuple[tuple[str, tuple[TensorInfo, ...]], ...] = ()
    """Names and tensors of several workloads; empty: there is one."""

    @property
    def several(self) -> tuple[tuple[str, tuple[TensorInfo, ...]], ...]:
        """Names and tensors of all workloads; one alone has no name."""
        return self.workloads or (("", self.tensors),)

    @property
    def largest(self) -> int:
        """Place, among all workloads, of the one with the most elements: what pays there pays most."""
        sizes = [sum(prod(tensor.shape) for tensor in tensors) for _, tensors in self.several]
        return sizes.index(max(sizes))


class CoderPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A coder's question."""

    task: Task
    contract: Contract
    node_id: str
    title: str
    description: str
    base: str
    """Source to build on; empty: start from the reference."""
    latest: str
    """Source of the latest attempt where it is not the base."""
    failure: str
    """How the latest attempt failed; empty if it did not."""
    attempts: int
    """Attempts so far."""
    draw: str


class TreeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the planner's digest shows it."""

    node_id: str
    parent_id: str
    state: str
    priority: float
    title: str
    best: float | None
    """Speedup of its best candidate; the least that it may be where only that is known."""
    tries: int
    is_ruled_out: bool = False
    """A person has forbidden it, or one above it."""
    is_favoured: bool = False
    """A person has put it forward."""


class PlannerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A planner's question."""

    task: Task
    contract: Contract
    purpose: Literal["analyse", "revise"]
    tree: tuple[TreeLine, ...]
    wanted: int
    limit: int
    childless: tuple[str, ...]
    refusals: str


def read_coder_prompt(prompt: str) -> CoderPrompt:
    """Return what a coder's prompt asks.

    Raises:
        NoRuleError: something that is needed cannot be found in it.
    """
    task, rest = _split(prompt, "# Action ")
    heading = re.match(r"# Action (?P<node>\S+): (?P<title>[^\n]*)\n", rest)
    if heading is None:
        raise NoRuleError("a prompt without an action")
    description = _section(rest, heading[0].rstrip("\n"))
    latest = _section(rest, "# Your latest attempt")
    numbers = re.findall(r"^(\d+)\. ", _section(rest, "# Earlier attempts at this action"), re.MULTILINE)
    wanted = _section(rest, "# What to return")
    return CoderPrompt(
        task=read_task(task),
        contract=read_contract(task),
        node_id=heading["node"],
        title=heading["title"],
        description=description,
        base=_code(_section(rest, "# Base code")),
        latest=_code(latest),
        failure=_failure(latest),
        attempts=int(numbers[-1]) if numbers else 0,
        draw=" ".join(re.findall(r"This is draw (\d+)", wanted)),
    )


def read_planner_prompt(prompt: str) -> PlannerPrompt:
    """Return the question of a planner's prompt.

    Raises:
        NoRuleError: a needed part is missing.
    """
    task, rest = _split(prompt, "# The tree")
    wanted = _section(rest, "# What is wanted")
    is_first = "at most" in wanted and "under n0" in wanted
    insert = re.search(r"Insert (\d+) new", wanted)
    limit = re.search(r"at most (\d+)", wanted)
    most = int(limit[1]) if limit else 0
    return PlannerPrompt(
        task=read_task(task),
        contract=read_contract(task),
        purpose="analyse" if is_first else "revise",
        tree=_tree(rest),
        wanted=most if is_first else int(insert[1]) if insert else 0,
        limit=most,
        childless=tuple(
            re.findall(r"^- (n\d+):", _section(rest, "# Closed nodes without an open child"), re.MULTILINE)
        ),
        refusals=_section(rest, "# Your previous answer was refused; nothing of it was applied"),
    )


def read_task(text: str) -> Task:
    """Return the reference and its tensors.

    Raises:
        NoRuleError: one of them cannot be found.
    """
    fenced = [code for _, tag, code in _FENCE.findall(text) if tag.split()[:1] == ["python"]]
    sources = [code for code in fenced if not _FUNCTION.match(code)]
    if not sources:
        raise NoRuleError("a task without a reference in Python")
    before, *parts = _WORKLOAD.split(text)
    workloads = tuple((name, _tensors(part)) for name, part in zip(parts[::2], parts[1::2], strict=True))
    tensors = workloads[0][1] if workloads else _tensors(before)
    if not all(any(tensor.role == "output" for tensor in table) for table in (tensors, *dict(workloads).values())):
        raise NoRuleError("a task without a table of its tensors")
    return Task(source=sources[0], tensors=tensors, workloads=workloads)


def _tensors(text: str) -> tuple[TensorInfo, ...]:
    """Read the rows of a table."""
    return tuple(tensor for line in text.splitlines() if (tensor := _tensor(line)) is not None)


def _tensor(line: str) -> TensorInfo | None:
    """Read a row of a table. The name, which may itself be `output`, comes before the role."""
    cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
    if len(cells) == _NUMBER_CELLS and cells[2].startswith("number "):
        # It takes a place among the arguments, but nothing reads it: `forward` has its value as a default.
        return TensorInfo(name=cells[1], role="parameter", shape=(), dtype="float32")
    roles = [index for index, cell in enumerate(cells) if _ROLE.match(cell)]
    shapes = [cell for cell in cells if _SHAPE.match(cell)]
    dtypes = [cell for cell in cells if re.fullmatch(r"(?:b?float|u?int|bool)\d*", cell)]
    if not roles or not roles[-1] or not shapes or not dtypes:
        return None
    shape = ast.literal_eval(shapes[0])
    role = cells[roles[-1]]
    return TensorInfo(
        name=cells[roles[-1] - 1],
        role="input" if role == "input" else "output" if role == "output" else "parameter",
        shape=shape if isinstance(shape, tuple) else (shape,),
        dtype=dtypes[0],
    )


def read_contract(text: str) -> Contract:
    """Return the function's declaration by the task's calling contract.

    Raises:
        NoRuleError: the contract is neither C++ with pointers to inputs and outputs, nor Triton with tensors.
    """
    for _, _, code in _FENCE.findall(text):
        function = _FUNCTION.match(code)
        if function:
            arguments = [argument.partition(":")[0].strip() for argument in function["arguments"].split(",")]
            names = tuple(filter(None, arguments))
            return TritonContract(function=function["name"], arguments=names)
        header = _HEADER.search(_COMMENT.sub("", code))
        pointers = [match["name"] for match in _POINTERS.finditer(header[1])] if header else []
        if header and _STREAM.search(header[1]):
            raise NoRuleError("the calling contract of CUDA")
        if header and len(pointers) >= 2:
            return CppContract(header=" ".join(header[1].split()), inputs=pointers[0], outputs=pointers[1])
    raise NoRuleError("a calling contract other than C++ with pointers or Triton with tensors")


def _split(prompt: str, heading: str) -> tuple[str, str]:
    """Split a prompt at the last line that begins with `heading` and is not in a fence."""
    starts = [start for start in _headings(prompt) if prompt.startswith(heading, start)]
    if not starts:
        raise NoRuleError(f"a prompt without {heading.strip()!r}")
    return prompt[: starts[0]], prompt[starts[0] :]


def _headings(text: str) -> list[int]:
    """Return the positions of headings of the first level, outside fences."""
    fences = [match.span() for match in _FENCE.finditer(text)]
    starts = [match.start() for match in re.finditer(r"^# ", text, re.MULTILINE)]
    return [start for start in starts if not any(low <= start < high for low, high in fences)]


def _section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next one; empty if there is none."""
    starts = _headings(text)
    for number, start in enumerate(starts):
        line, _, _ = text[start:].partition("\n")
        if line == heading:
            end = starts[number + 1] if number + 1 < len(starts) else len(text)
            return text[start + len(line) : end].strip("\n")
    return ""


def _code(section: str) -> str:
    fence = _FENCE.search(section)
    return fence[3] if fence else ""


def _failure(latest: str) -> str:
    said, _, _ = latest.partition("```")
    return said if "failed" in said else ""


def _tree(text: str) -> tuple[TreeLine, ...]:
    """Return the nodes in their current state: the last line about a node counts; those in flight are separate."""
    found = {line.node_id: line for line in map(_tree_line, text.splitlines()) if line is not None}
    flying = re.search(r"^In flight: (.*)$", text, re.MULTILINE)
    for node_id in flying[1].split(", ") if flying else ():
        if node_id in found:
            found[node_id] = msgspec.structs.replace(found[node_id], state="in flight")
    return tuple(found.values())


def _tree_line(line: str) -> TreeLine | None:
    cells = [cell.strip() for cell in line.split(" | ")]
    ids = re.fullmatch(r"(n\d+) < (n\d+)(?: \+ n\d+)?", cells[0])
    if ids is None or len(cells) < 5:
        return None
    best = re.search(r"\| best (?:at least )?(\d+\.\d+)x", line)
    tries = re.search(r"\| (\d+) tries", line)
    return TreeLine(
        node_id=ids[1],
        parent_id=ids[2],
        state=cells[1],
        priority=float(cells[2].removeprefix("V ")),
        title=cells[4],
        best=float(best[1]) if best else None,
        tries=int(tries[1]) if tries else 0,
        is_ruled_out=not _RULED_OUT.isdisjoint(cells),
        is_favoured=any(_FAVOURED.match(cell) for cell in cells),
    )
