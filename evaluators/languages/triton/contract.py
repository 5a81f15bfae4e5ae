"""The calling contract of Triton candidates, as coders read it. The runner keeps the same contract."""

from __future__ import annotations

import keyword
from collections.abc import Sequence

from evaluators.languages.base import Passed, check_dtypes, passed, shape_text
from messages.calls import CallForm, Number
from messages.tasks import TensorSpec

ENTRY_POINT = "ksearch_run"

POINTER_TYPES = {
    "float32": "tl.float32",
    "float64": "tl.float64",
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "int16": "tl.int16",
    "int8": "tl.int8",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
    "float8_e4m3fn": "tl.float8e4nv",
    "float8_e5m2": "tl.float8e5",
}
"""Element types of kernels' pointers, by dtype."""

_RULES = f"""Rules:
- One file. `{ENTRY_POINT}` is a Python function that launches `@triton.jit` kernels of the same file.
- It is called with torch tensors by position, in the order of the table above: the arguments of `forward`, then the
  module's parameters, buffers and other tensor attributes, then the outputs. It returns None.
- Tensors are dense and row-major, all on one device; do not assume which. Shapes and dtypes are those of the table;
  they may be constants in the code, or be read from the tensors.
- The work is done by the kernels. Use torch only to look at shapes, for views and for workspaces (`torch.empty(...,
  device=x.device)`), not to compute. Import nothing but torch, triton, triton.language and math.
- Outputs are preallocated and hold garbage: write every element, read none before. Never write to an input.
- Every call brings new contents: nothing computed from the contents may be kept for a later call. Parameters are inputs
  too, and may change. Inputs and outputs lie at other addresses from call to call: keep no tensor that was passed in.
- Load and store nothing outside the tensors: mask the tail of every block. Block sizes are powers of two.
- Programs of a grid run in any order and at once: none may need what another writes in the same launch.
- Accumulate in float32 whatever the inputs are: errors must stay near the reference's own rounding errors, on inputs of
  any distribution."""

_NUMBERS = (
    """- Numbers among the inputs are plain Python numbers in their places, the same in every call of a workload."""
)

INTERPRETED = """- Of `triton.autotune`, the first configuration must be a good one: it is the only one tried."""

ON_GPU = """- It runs and is timed on the GPU that the target names. Kernels are compiled for it before: one that does
  not compile, or that needs more shared memory than a block may have, is refused. Calls are timed warm, one behind
  another: what is compiled or tuned in the first calls is free, launches and torch calls of later ones may show.
- `triton.autotune` is allowed: its configurations are measured on the GPU in the first call, so keep them few (up to
  some ten), with a `key` that never changes, and without kernels that need their outputs zeroed.
- Everything is launched on the current stream. Nothing synchronises or reads a tensor's contents on the host
  (`.item()`, `.cpu()`, `torch.cuda.synchronize()`): calls are queued, and may be captured into a CUDA graph."""


def describe(tensors: tuple[TensorSpec, ...], further_rules: str = INTERPRETED, call: CallForm | None = None) -> str:
    """Tell signature, rules and a skeleton for these tensors, and the numbers among them.

    Args:
        tensors: the task's.
        call: which numbers stand among them; None: none.
        further_rules: of the platform: `INTERPRETED` or `ON_GPU`.

    Raises:
        ConfigError: a tensor has a dtype that Triton candidates cannot be given.
    """
    check_dtypes(tensors, POINTER_TYPES, "Triton")
    given = passed(tensors, call)
    names = argument_names(given)
    comments = "\n".join(f"    # {name}: {_say(one)}" for name, one in zip(names, given, strict=True))
    numbers = f"\n{_NUMBERS}" if call is not None and call.numbers else ""
    return "\n\n".join(
        (
            f"Write a Triton program with the entry point `{ENTRY_POINT}`:",
            f"```python\n{_signature(names)}\n{comments}\n```",
            f"{_RULES}{numbers}\n{further_rules}",
            "Skeleton of the contract (it computes nothing):",
            f"```python\n{_skeleton(given, names)}\n```",
        )
    )


def argument_names(tensors: Sequence[Passed]) -> tuple[str, ...]:
    """Return the parameter names of the entry point: the tensors' names as identifiers, each different."""
    names: list[str] = []
    for tensor in tensors:
        name = "".join(letter if letter.isalnum() else "_" for letter in tensor.name)
        if not name.isidentifier() or keyword.iskeyword(name):
            name = f"{name}_" if keyword.iskeyword(name) else f"t_{name}"
        while name in names:
            name += "_"
        names.append(name)
    return tuple(names)


def _signature(names: tuple[str, ...]) -> str:
    return f"def {ENTRY_POINT}({', '.join(names)}) -> None:"


def _skeleton(given: Sequence[Passed], names: tuple[str, ...]) -> str:
    output = names[-1]
    parameters = [name if isinstance(one, Number) else f"{name}_ptr" for name, one in zip(names, given, strict=True)]
    pointers = ", ".join(parameters)
    return "\n".join(
        (
            "import torch",
            "import triton",
            "import triton.language as tl",
            "",
            "",
            "@triton.jit",
            f"def kernel({pointers}, elements, BLOCK: tl.constexpr):",
            *(
                f"    # {name}_ptr points to {POINTER_TYPES[one.dtype]}"
                for name, one in zip(names, given, strict=True)
                if isinstance(one, TensorSpec)
            ),
            "    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "    mask = offsets < elements",
            f"    tl.store({output}_ptr + offsets, tl.zeros((BLOCK,), tl.float32), mask=mask)",
            "",
            "",
            _signature(names),
            f"    elements = {output}.numel()",
            "    BLOCK = 1024",
            f"    kernel[(triton.cdiv(elements, BLOCK),)]({', '.join(names)}, elements, BLOCK=BLOCK)",
        )
    )


def _say(one: Passed) -> str:
    if isinstance(one, Number):
        return f"the number {one.value!r}"
    return f"{shape_text(one)} {one.dtype}, {one.role}"
