"""What `ksearch new-task` writes: a task that works, with a comment on each key."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from evaluators.tasks.own.document import DOCUMENT
from messages.base import ConfigError

REFERENCE = "reference.py"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")

_DOCUMENT = Template("""\
# A task of your own. Look at it with `ksearch check-task ./$name`, search with `ksearch run ./$name`.

name = "$name"
description = "RMSNorm over the last dimension, then SiLU."   # models read it; say what matters

# The function that is to be made fast: FILE.py:FUNCTION, beside this file. Files that it imports come with it.
reference = "reference.py:$name"

# How far outputs may lie from the reference: "strict", or what another harness lets through ("kernelbench",
# "flashinfer", "gpumode:RTOL,ATOL"); or {profile = "strict", rtol = 1e-3, atol = 1e-5}.
tolerance = "strict"

# What kernels may be written in. Leave it out for any: "triton", "cuda", "cpp", "python".
# languages = ["triton", "cuda"]

# How candidates in "python" are called: "function" returns its outputs; "destination" is given them behind the inputs.
# calling = "function"

# The arguments of the function, in their order.
[[inputs]]
name = "x"
shape = ["rows", "columns"]        # numbers, dimensions of the workloads, and expressions: "2 * rows", "columns // 4"
dtype = "float32"                  # float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool
distribution = "normal"            # normal normal(0, 0.02) uniform(-1, 1) zeros ones integers(0, rows) permutation
                                   # bernoulli(0.5)
# as_drawn = true                  # test it on such values only: probabilities, lengths

[[inputs]]
name = "weight"
shape = ["columns"]
distribution = "normal(1, 0.1)"

[[inputs]]
name = "eps"
value = 1e-6                       # no tensor: the same in every call; or the name of a dimension

# Sizes on which kernels are checked and timed; what counts is the geometric mean of the speedups.
[workloads]
small = {rows = 256, columns = 1024}
odd = {rows = 253, columns = 1021}

# Kernels must be right on these too, before one counts as the best; models are never told of them. (The built-in rules
# write for the shapes that they are shown and no others; models can be asked for more.)
# [hidden_workloads]
# held_out = {rows = 131, columns = 771}

[rules]
library_calls = "deny"             # whether torch's own operators may do the work: "deny" or "allow"
# allow = ["matmul"]               # some of them: families, aten::NAME, libraries
# measure = "device"               # on a GPU: "device", kernels alone; "eager", the call as a user makes it
# threads = 0                      # of a CPU; 0: all
""")
_REFERENCE = Template('''\
"""The reference of `$name`: plain torch, right before fast. Kernels must give what this gives."""

import torch


def $name(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normed = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return torch.nn.functional.silu(normed * weight)
''')


def write_task(parent: Path, name: str) -> Path:
    """Write a commented task that works, and return its folder.

    Args:
        parent: where the folder is made.
        name: of the task, its folder and its function.

    Raises:
        ConfigError: it is no name, there is something already, or it cannot be written.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a task: letters, digits and _, as a Python function's")
    folder = parent / name
    try:
        folder.mkdir(parents=True)
        (folder / DOCUMENT).write_text(_DOCUMENT.substitute(name=name), encoding="utf-8")
        (folder / REFERENCE).write_text(_REFERENCE.substitute(name=name), encoding="utf-8")
    except FileExistsError as error:
        raise ConfigError(f"{str(folder)!r} is there already; name another task, or remove it") from error
    except OSError as error:
        raise ConfigError(f"cannot write {str(folder)!r}: {error.strerror}") from error
    return folder
