"""What a model is told of a definition besides its reference: what it is, its axes, inputs, outputs and constraints."""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.tasks.flashinfer.checks import has_check
from evaluators.tasks.flashinfer.schema import Argument, AxisConst, Definition

_CONVENTIONS = """\
In Python, candidates are called in upstream's destination-passing style: `run` takes the inputs in the order above,
then the outputs, which are allocated and hold garbage; it writes every element of them and returns None. Numbers are
passed as numbers of Python."""

_EXAMPLE = """\
For inputs x: (rows, columns) and scale: a number, and an output y: (rows, columns), a candidate in Python is:

```python
import torch


def run(x, scale, y):
    torch.mul(x, scale, out=y)
```"""

_INFINITIES = """Where the reference gives -inf (the log-sum-exp of a query that sees no key), so must a candidate."""

_SAMPLING = """\
Outputs are random, and no seed is given: a candidate brings its own random numbers, for example a counter of calls in a
static variable, hashed with the row's number. Each call is checked for tokens that may not be drawn. Over many calls,
on the same inputs and on others, tokens must be drawn as often as their probabilities say, independently from row to
row and from call to call. Which numbers a candidate draws is its own matter, and need not be the reference's."""

_ANY_ORDER = """\
The largest scores may be named in any order. Those that differ from the smallest of them by the rounding of float32
sums only may stand for one another; every other one is asked for."""


def notes_for(definition: Definition, *, made_up: Sequence[str] = (), are_sizes_made_up: bool = False) -> str:
    """Return the definition in words, in Markdown.

    Args:
        definition: what is to be computed.
        made_up: inputs that were recorded, in files that are not here, so that others were drawn in their place.
        are_sizes_made_up: whether the workloads are none that were recorded.
    """
    parts = [
        f"This is the FlashInfer-Bench definition `{definition.name}` (`{definition.op_type}`).",
        *([definition.description] if definition.description else []),
        "Axes:\n" + "\n".join(_axis(name, definition) for name in definition.axes),
        "Inputs, in call order:\n" + "\n".join(_argument(*one) for one in definition.inputs.items()),
        "Outputs, in call order:\n" + "\n".join(_argument(*one) for one in definition.outputs.items()),
    ]
    if definition.constraints:
        parts.append("What holds in every workload:\n" + "\n".join(f"- `{one}`" for one in definition.constraints))
    parts.extend((_CONVENTIONS, _EXAMPLE))
    if "lse" in definition.outputs:
        parts.append(_INFINITIES)
    if has_check(definition):
        parts.append(_SAMPLING if definition.op_type == "sampling" else _ANY_ORDER)
    if made_up:
        parts.append(f"Not recorded, drawn instead: {', '.join(f'`{name}`' for name in made_up)}.")
    if are_sizes_made_up:
        parts.append("The sizes of the workloads are made up; none was recorded.")
    return "\n\n".join(parts)


def _axis(name: str, definition: Definition) -> str:
    axis = definition.axes[name]
    size = str(axis.value) if isinstance(axis, AxisConst) else "varies"
    return f"- `{name}`: {size}{_described(axis.description)}"


def _argument(name: str, argument: Argument) -> str:
    shape = "a number" if argument.shape is None else f"({', '.join(argument.shape)})"
    return f"- `{name}`: {shape}, {argument.dtype}{_described(argument.description)}"


def _described(text: str | None) -> str:
    return f". {' '.join(text.split())}" if text else ""
