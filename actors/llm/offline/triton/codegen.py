"""From programs and a plan to one Triton source, for one workload or several; and the transformations of such plans.

The source is specialised to its shapes. For other shapes it raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from actors.llm.offline.plan import Catalogue, Move, Plan, plan_comment
from actors.llm.offline.stages import Access, NoRuleError, Program, TensorInfo
from actors.llm.offline.triton.expressions import needed_functions
from actors.llm.offline.triton.rows import RowKernel, indented
from messages.base import Language


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Call form of the candidate."""

    language: ClassVar[Language] = "triton"
    function: str
    arguments: tuple[str, ...]
    """Names of inputs and parameters, then of outputs."""


def write_source(programs: Sequence[Program], plan: Plan, contract: Contract) -> str:
    """Return the source. For several workloads it contains the launches of each, chosen by shapes.

    Raises:
        NoRuleError: a part has no rule in Triton.
    """
    arguments = ", ".join(contract.arguments)
    definitions: dict[str, str] = {}
    """Names of kernels by their texts: equal texts share a kernel."""
    bodies = [_body(program, plan, contract.arguments, definitions) for program in programs]
    if len(bodies) == 1:
        functions = ["\n".join([f"def {contract.function}({arguments}):", *indented(bodies[0])])]
    else:
        functions = [
            "\n".join([f"def run_workload_{at}({arguments}):", *indented(body)]) for at, body in enumerate(bodies)
        ]
        entry = [f"shapes = [tuple(tensor.shape) for tensor in ({arguments},)]"]
        for at, program in enumerate(programs):
            shapes = [tuple(tensor.shape) for tensor in program.arguments]
            entry += [f"if shapes == {shapes!r}:", f"    return run_workload_{at}({arguments})"]
        entry.append('raise ValueError(f"shapes that it was not written for: {shapes}")')
        functions.append("\n".join([f"def {contract.function}({arguments}):", *indented(entry)]))
    kernels = [text.replace("def KERNEL(", f"def {name}(") for text, name in definitions.items()]
    imports = ["import torch", "import triton", "import triton.language as tl"]
    head = "\n".join([plan_comment(plan, "#"), *imports[0 if "torch." in "".join(functions) else 1 :]])
    return "\n\n\n".join([head, *needed_functions("\n".join(kernels)), *kernels, *functions]) + "\n"


def _body(program: Program, plan: Plan, arguments: Sequence[str], definitions: dict[str, str]) -> list[str]:
    """Return the allocations and launches of a program; its kernels are added to the definitions."""
    if len(program.arguments) != len(arguments):
        raise NoRuleError(f"a contract of {len(arguments)} arguments for {len(program.arguments)} tensors")
    if program.contractions:
        raise NoRuleError("products of matrices in Triton")
    names = dict(zip(program.arguments, arguments, strict=True))
    values = [tensor for tensor in program.tensors if tensor.role == "value"]
    for number, value in enumerate(values):
        names[value] = f"value_{number}"
        while names[value] in arguments:
            names[value] += "_"
    sources, targets = program.sources, program.targets
    tensors = {name: tensor for tensor, name in names.items()}
    lines = [
        f'{names[value]} = torch.empty({value.shape}, dtype=torch.{program.real}, device={arguments[0]}.device)'
        for value in values
    ]  # fmt: skip
    for stage in program.stages:
        named = stage.over(stage.rows, stage.columns, lambda access: _named(access, sources, names))
        named = msgspec.structs.replace(named, target=_named(stage.target, targets, names))
        kernel = RowKernel(named, plan, tensors, program.real, "KERNEL")
        lines.append(kernel.launch(definitions.setdefault(kernel.definition(), f"row_kernel_{len(definitions)}")))
    return lines


def _named(access: Access, tensors: dict[str, TensorInfo], names: dict[TensorInfo, str]) -> Access:
    """Return an access by the name of its tensor in the source."""
    if access.name not in tensors:
        return access
    return msgspec.structs.replace(access, name=names[tensors[access.name]])


def _has_rows(program: Program) -> bool:
    return any(stage.rows for stage in program.stages)


def _reads_much(program: Program) -> bool:
    """Return True if several inputs have a value for every column, and there is a reduction."""
    return any(
        stage.reductions and sum((node.op, node.kind) == ("load", "full") for node in stage.nodes) > 1
        for stage in program.stages
    )


CATALOGUE = Catalogue(
    moves=(
        Move(
            name="warps",
            title="Choose the warps per program",
            why="More warps share a row's registers and hide more latency; fewer make reductions cheaper.",
            difficulty=1,
            priority=0.55,
        ),
        Move(
            name="rows",
            title="Choose the rows per program",
            why="Short rows leave a program too little to do; long ones spill registers if several share a program.",
            difficulty=1,
            priority=0.5,
            applies=_has_rows,
        ),
        Move(
            name="early",
            title="Ask for a row's inputs all at once",
            why="A reduction waits for its input with nothing else under way: what is needed only after it can be on "
            "its way meanwhile, at the price of registers.",
            difficulty=1,
            priority=0.45,
            applies=_reads_much,
        ),
        Move(
            name="persistent",
            title="Let a fixed grid take the rows in turns",
            why="As many programs as the device holds at once, each with many rows, save the start of thousands.",
            difficulty=2,
            priority=0.3,
            applies=_has_rows,
        ),
        Move(
            name="stream",
            title="Keep what is used once out of the caches",
            why="Inputs that are read once and outputs that nobody reads soon need not displace weights.",
            difficulty=1,
            priority=0.25,
        ),
    ),
    parameters={"warps": (8, 16, 4, 2, 1), "rows": (1, 4, 2, 8, 16), "persistent": (264, 132, 528, 1056)},
    at_once=frozenset({"warps", "rows"}),
    keywords=(
        ("warps", r"warps?\b"),
        ("rows", r"rows per program|several rows|multiple rows"),
        ("early", r"all at once|all loads|loads? first|hoist"),
        ("persistent", r"persistent|fixed grid"),
        ("stream", r"evict|cache (?:hint|modifier)|streaming"),
    ),
)
"""`persistent` counts programs: multiples of 132, the multiprocessors of an H100 or H200."""
