"""The calling contract of modules, as coders read it. The runner keeps the same contract."""

from __future__ import annotations

from evaluators.languages.python.function_contract import say_nests
from messages.calls import CallForm
from messages.tasks import TensorSpec

ENTRY_POINT = "ModelNew"

_RULES = f"""Rules:
- One or more files; the main one defines `{ENTRY_POINT}`, a `torch.nn.Module` that is made with what
  `get_init_inputs` returns and takes the place of `Model`. `forward` is called with the arguments of the reference's,
  under `torch.no_grad()`, and returns what the reference returns: plain, dense `torch.Tensor`s of the same shapes and
  dtypes.
- It holds the reference's parameters and buffers under the same names and in the same shapes (or parameters of the
  same shapes in the same order). Their values come after `__init__`, by `load_state_dict`; what `__init__` puts there
  is overwritten. They are constants from then on: what is derived from them may be kept (packed, folded, converted).
  Do that in a hook (`register_load_state_dict_post_hook`) or in the first call, which is not timed; in `__init__` it
  is too early.
- Every call brings new contents of the inputs: nothing computed from them may be kept for a later call. They lie at
  other addresses from call to call: keep no input, and capture a CUDA graph only over copies of them. Parameters stay.
  Inputs are mapped read-only: never write to one, also not in place.
- Output tensors are copied to where they are compared, and the copy's cost is taken off.
- Import nothing but torch, numpy, einops (where it is installed) and the standard library. Where library calls are
  denied, numpy's linear algebra raises, and a tensor cannot become an array. No file, no process, no network.
- C++ or CUDA inside, by `torch.utils.cpp_extension.load_inline`: call it at the top level of the file, with texts and
  flags that are the same in every run. It is compiled once, when the candidate is built, which takes half a minute.
- As many threads as the reference's. Errors must stay near the reference's own rounding errors, on inputs of any
  distribution."""


def describe(tensors: tuple[TensorSpec, ...], call: CallForm | None = None) -> str:
    """Tell signature, rules and a skeleton for these tensors, and what stands beside them in a call."""
    inputs = [tensor for tensor in tensors if tensor.role == "input"]
    outputs = [tensor for tensor in tensors if tensor.role == "output"]
    told = call.names if call is not None else tuple(tensor.name for tensor in inputs)
    names = ", ".join(("self", *told))
    nests = f"\n{say_nests(call)}" if call is not None else ""
    comments = "\n".join(
        f"        # {tensor.name}: {tensor.shape} {tensor.dtype}, {tensor.role}" for tensor in (*inputs, *outputs)
    )
    skeleton = "\n".join(
        (
            "import torch",
            "from torch import nn",
            "",
            "",
            f"class {ENTRY_POINT}(nn.Module):",
            "    def __init__(self, ...) -> None:  # the arguments of Model",
            "        super().__init__()",
            "        ...  # the parameters of Model, under the same names",
            "",
            f"    def forward({names}):",
            comments,
            "        ...",
        )
    )
    return "\n\n".join(
        (
            f"Write a torch module `{ENTRY_POINT}`:",
            f"{_RULES}{nests}",
            "Skeleton of the contract:",
            f"```python\n{skeleton}\n```",
        )
    )
