"""The calling contract of functions, as coders read it. The runner keeps the same contract."""

from __future__ import annotations

import msgspec

from evaluators.runners import structure
from messages.calls import CallForm, Structure
from messages.tasks import TensorSpec

ENTRY_POINT = "ksearch_run"
"""Where the task gives no name."""

_RETURNED = """- It returns what the reference returns: plain, dense `torch.Tensor`s of the same shapes and dtypes, in a
  nest of the same form. They are copied to where they are compared, and the copy's cost is taken off."""
_WRITTEN = """- The outputs are passed behind the inputs: preallocated, dense, and full of garbage. Write every element,
  read none before. It returns None."""
_RULES = """- Every call brings new contents of the tensors: nothing computed from them may be kept for a later call.
  They lie at other addresses from call to call: keep no tensor that was passed in.
  Numbers, texts and whatever else is no tensor are the same in every call of a workload.
- Never write to an input tensor, also not in place.
- It is called under `torch.no_grad()`. Import nothing but torch, triton, numpy, einops (where it is installed)
  and the standard library. Where library calls are denied, numpy's linear algebra raises, and a tensor cannot become
  an array. No file, no process, no network.
- C++ or CUDA inside, by `torch.utils.cpp_extension.load_inline`: call it at the top level of the file, with texts and
  flags that are the same in every run. It is compiled once, when the candidate is built.
- As many threads as the reference's. Errors must stay near the reference's own rounding errors, on inputs of any
  distribution."""


def describe(tensors: tuple[TensorSpec, ...], call: CallForm, entry_point: str) -> str:
    """Tell signature, rules and a skeleton of a function.

    Args:
        tensors: the task's.
        call: what it takes and returns.
        entry_point: what it is to be called; empty: `ENTRY_POINT`.
    """
    name = entry_point or ENTRY_POINT
    outputs = [tensor for tensor in tensors if tensor.role == "output"]
    is_destination = call.calling == "destination"
    behind = [tensor.name.replace(".", "_") for tensor in outputs] if is_destination else []
    comments = "\n".join(
        f"    # {tensor.name}: {tensor.shape} {tensor.dtype}, {tensor.role}"
        for tensor in tensors
        if tensor.role != "parameter"
    )
    skeleton = f"import torch\n\n\ndef {name}({', '.join((*call.names, *behind))}):\n{comments}\n    ..."
    ends = _WRITTEN if is_destination else _RETURNED
    return "\n\n".join(
        (
            f"Write a function `{name}` in Python:",
            f"Rules:\n- One or more files; the main one defines `{name}`, which takes the arguments of "
            f"`Model.forward`.\n{ends}\n{_RULES}\n{say_nests(call)}",
            "Skeleton of the contract:",
            f"```python\n{skeleton}\n```",
        )
    )


def say_nests(call: CallForm) -> str:
    """Say what is given and returned, as far as it is more than tensors."""
    given = ", ".join(
        f"`{name}` is `{_shown(item)}`" for name, item in zip(call.names, call.arguments.items, strict=True)
    )
    return f"- What is given: {given}. The reference returns `{_shown(call.outputs)}`."


def _shown(item: Structure) -> str:
    form: structure.Form = msgspec.to_builtins(item)
    return structure.describe(form)
