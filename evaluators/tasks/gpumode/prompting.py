"""What a model is told of a GPUMode problem besides our own description: how it is called there, and whose it is."""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.tasks.gpumode.contract import Contract
from evaluators.tasks.gpumode.document import Document

ENTRY_POINT = "custom_kernel"

_EXAMPLE = """```python
import torch


def custom_kernel(data):
    x, weight = data  # a problem of two tensors: the tuple that generate_input returns
    return torch.nn.functional.relu(x) * weight
```"""


def write_notes(document: Document, contract: Contract, *, provenance: str, remarks: Sequence[str] = ()) -> str:
    """Return what stands in a task's notes, as Markdown.

    Args:
        document: `task.yml`.
        contract: how its reference is called.
        provenance: where it is from, and under what licence: a sentence.
        remarks: what differs from the competition's own harness, a sentence each.
    """
    parts = [
        "### The problem, in its authors' words",
        document.description.strip() or "(They say nothing.)",
        "### How a submission is called",
        *_contract(contract),
        "### How it counts",
        " ".join((*remarks, contract.tolerance.note, provenance)).strip(),
    ]
    return "\n\n".join(parts)


def _contract(contract: Contract) -> list[str]:
    rules = [
        "A candidate in the language `python` defines a function "
        f"`{ENTRY_POINT}(data)`. `data` is what the problem's `{contract.generator}` returns, in its own form; the "
        "function returns what the reference returns for it. Do not import `task`, `utils` or `reference`."
    ]
    if contract.rooms:
        rules.append(
            "The last items of `data` are uninitialised tensors, room for the outputs: write to them and return them, "
            "or return tensors of your own. Dtypes are those of the room, shapes those of the reference's outputs. "
            "Everything else in `data` must stay as it is."
        )
    if contract.passes:
        forward, backward = contract.passes
        rules.append(
            f"The file also defines `{forward}(logits, targets)` and `{backward}(logits, targets, grad_output)`, which "
            "are what the competition calls, and uses them:\n\n"
            f"```python\ndef {ENTRY_POINT}(data):\n    logits, targets, grad_output = data\n"
            f"    return {forward}(logits, targets), {backward}(logits, targets, grad_output)\n```"
        )
    else:
        rules.append(f"An example of the form, of another problem:\n\n{_EXAMPLE}")
    return rules
