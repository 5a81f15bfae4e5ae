"""Writes a definition as a problem file of ours: its reference, and below it `Model`, `get_inputs`, `get_init_inputs`.

- `problem_text(definition, workloads, recorded) -> str`
- `dimensions_of(definition, workload) -> dict[str, Dimension]`: what the file's functions are given
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from evaluators.tasks.flashinfer.checks import check_of
from evaluators.tasks.flashinfer.drawing import number_of, plan_inputs
from evaluators.tasks.flashinfer.schema import FLOATING, LOW_BITS, Definition, ScalarInput, Workload
from messages.base import ConfigError
from messages.tasks import Dimension

WORKLOAD = "workload"
"""Dimension that says of which workload recorded tensors are; there where some were recorded."""
_CHOOSING = ("routing_", "probs", "top_p")
_OURS = (
    "Model",
    "check_outputs",
    "positions",
    "drawn_outputs",
    "AS_DRAWN",
    "get_inputs",
    "get_init_inputs",
    "drawn_inputs",
    "recorded_inputs",
)


def problem_text(definition: Definition, recorded: Collection[str]) -> str:
    """Return the problem file.

    Args:
        definition: what it computes.
        recorded: inputs that come from recorded tensors, which a module `recorded_inputs` holds.

    Raises:
        ConfigError: an input cannot be made, or the reference defines a name that the file needs for itself.
    """
    _check_names(definition)
    return "\n".join(
        (
            definition.reference.rstrip(),
            "",
            "",
            "# What follows was written by ksearch from the definition; what stands above is its reference, verbatim.",
            "import torch",
            "",
            "",
            *_model(definition),
            "",
            "",
            *_as_drawn(definition),
            *_get_inputs(definition, recorded),
            *check_of(definition),
            "",
            "",
            "def get_init_inputs():",
            "    return []",
            "",
        )
    )


def dimensions_of(definition: Definition, workload: Workload, recorded: Collection[str]) -> dict[str, Dimension]:
    """Return the sizes of a workload's axes, its numbers, and of which workload recorded tensors are."""
    sizes: dict[str, Dimension] = {axis: workload.axes[axis] for axis in definition.var_axes}
    axes = {**definition.const_axes, **workload.axes}
    for name, argument in definition.inputs.items():
        if argument.shape is None:
            given = workload.inputs.get(name)
            value = given.value if isinstance(given, ScalarInput) else number_of(definition, name, axes)
            # A float that is whole is written without a point in JSON, and would be an integer here.
            sizes[name] = float(value) if argument.dtype in FLOATING else value
    return {**sizes, WORKLOAD: workload.uuid} if recorded else sizes


def _check_names(definition: Definition) -> None:
    defined = {
        node.name for node in ast.parse(definition.reference).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    if taken := next((name for name in _OURS if name in defined), None):
        raise ConfigError(f"definition {definition.name!r}: its reference defines {taken!r}, a name that tasks need")
    if WORKLOAD in definition.axes or WORKLOAD in definition.inputs:
        raise ConfigError(f"definition {definition.name!r} names something {WORKLOAD!r}, a name that tasks need")


def _model(definition: Definition) -> list[str]:
    names = ", ".join(definition.inputs)
    # A reference that writes to a buffer among its inputs would change what candidates are given.
    given = ", ".join(f"{name}.clone()" if name.endswith("_buffer") else name for name in definition.inputs)
    outputs = ", ".join(f'result["{name}"]' for name in definition.outputs)
    trailing = "," if len(definition.outputs) == 1 else ""
    return [
        "class Model(torch.nn.Module):",
        f"    def forward(self, {names}):",
        f"        result = run({given})",
        f"        return ({outputs}{trailing}) if isinstance(result, dict) else result",
    ]


def _as_drawn(definition: Definition) -> list[str]:
    """Return the statement that names inputs of which no other values than drawn ones are good for a check.

    Values of eight bits have no room for other distributions; scores by which experts are chosen must have no ties, of
    which any may be taken; probabilities must add up to 1.
    """
    names = [
        name
        for name, argument in definition.inputs.items()
        if argument.shape is not None and (argument.dtype in LOW_BITS or name.startswith(_CHOOSING))
    ]
    return [f"AS_DRAWN = {names!r}", "", ""] if names else []


def _get_inputs(definition: Definition, recorded: Collection[str]) -> list[str]:
    plan = plan_inputs(definition, recorded)
    numbers = [name for name, argument in definition.inputs.items() if argument.shape is None]
    taken = [*definition.var_axes, *numbers, *([WORKLOAD] if recorded else [])]
    return [
        f"def get_inputs({', '.join(taken)}):",
        "    import drawn_inputs",
        *(["    import recorded_inputs"] if recorded else []),
        "",
        *(f"    {line}" for line in plan.before),
        *(f"    {name} = {made}" for name, made in plan.made.items()),
        f"    return [{', '.join(definition.inputs)}]",
    ]
