"""What a model is told of a TritonBench problem besides the problem file and our own rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from evaluators.tasks.tritonbench.packing import ending
from messages.base import ConfigError

_LICENCE = {
    "G": "Problem: TritonBench-G (thunlp/TritonBench, Apache-2.0); the gold is of {repo}, under its licence.",
    "T": "Problem: TritonBench-T (thunlp/TritonBench, Apache-2.0).",
}
_FILES = {"G": "TritonBench_G_v1.json", "T": "TritonBench_T_v1.jsonl"}
"""Both hold one JSON list, whatever the name says."""
_MOST_INSTRUCTION = 6000

_CONTRACT = """How a candidate is called here:
- The file defines {functions} with the same arguments as the gold below, and returns and writes what that does:
  same shapes and dtypes. Kernels are Triton's; the functions around them launch them.
- The calls that TritonBench's own test makes are made one after the other, on inputs drawn anew each time, and on
  others of adversarial values. All tensors that come of them are compared: what is returned, and what is written to.
- Inputs are on the device where the reference runs; make tensors by `empty_like`, or on the device of an input.
- The file ends with these lines, as they are:

```python
{ending}```"""

_EXAMPLE = """A file of this form for another problem, `add(x, y)`, less those last lines:

```python
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(x_ptr + offsets, mask=inside) + tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, total, mask=inside)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(out.numel(), 1024),)](x, y, out, out.numel(), BLOCK=1024)
    return out
```"""


class _Entry(msgspec.Struct, frozen=True):
    """What a checkout's list says of a problem; G and T have different fields."""

    file: str
    repo: str = ""
    comp_instru: str = ""
    name: str = ""
    func_inputs: str = ""
    description: str = ""
    math: str = ""
    other: str = ""
    difficulty: str | int = ""


def notes(suite: str, name: str, gold: str, functions: Sequence[str], root: Path) -> str:
    """Return the definition, the contract, an example and where the problem comes from.

    Args:
        suite: `G` or `T`.
        name: the problem's.
        gold: its text.
        functions: what candidates must define.
        root: of the checkout; a problem file that lies elsewhere has no definition but its gold.

    Raises:
        ConfigError: the checkout's list cannot be read.
    """
    entry = _entry(root / "data" / _FILES[suite], f"{name}.py")
    told = [_definition(entry)] if entry is not None else []
    told.append(f"The gold:\n\n```python\n{gold}```")
    told.append(_CONTRACT.format(functions=", ".join(f"`{one}`" for one in functions), ending=ending(functions)))
    told.append(_EXAMPLE)
    told.append(_LICENCE[suite].format(repo=entry.repo if entry is not None and entry.repo else "a third party"))
    return "\n\n".join(told) + "\n"


def _definition(entry: _Entry) -> str:
    """Return the problem's description in the list's own words, cut where it is very long."""
    parts = [
        " ".join(entry.comp_instru.split())[:_MOST_INSTRUCTION],
        entry.description,
        f"Signature: {entry.func_inputs}" if entry.func_inputs else "",
        f"Definition: {entry.math}" if entry.math else "",
        entry.other,
        f"Difficulty, by the benchmark's authors: {entry.difficulty} of 5." if entry.difficulty else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _entry(path: Path, file: str) -> _Entry | None:
    if not path.is_file():
        return None
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_Entry], strict=False)
    except (OSError, msgspec.MsgspecError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from error
    return next((entry for entry in entries if entry.file == file), None)
