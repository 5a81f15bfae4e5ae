"""Writes the problem file of a definition: its reference, and below it `Model`, `get_inputs`, `get_init_inputs`.

- `problem_text(definition, recorded)`, `dimensions_of(definition, workload, recorded)`
- `plan_inputs(definition, recorded)`: how inputs without recorded tensors are drawn
- `has_check(definition)`: outputs with more than one right value are checked, not compared
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

import msgspec

from evaluators.tasks.flashinfer.trace_set import (
    FLOATING,
    LOW_BITS,
    Argument,
    Definition,
    ScalarInput,
    Workload,
    last_value_of,
)
from messages.base import ConfigError
from messages.tasks import Dimension

WORKLOAD = "workload"
"""Dimension that names the workload of recorded tensors; present if some were recorded."""
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
        definition: the definition.
        recorded: inputs with recorded tensors, from a module `recorded_inputs`.

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
    """Return the sizes of a workload's axes, its numbers, and the workload of its recorded tensors."""
    sizes: dict[str, Dimension] = {axis: workload.axes[axis] for axis in definition.var_axes}
    axes = {**definition.const_axes, **workload.axes}
    for name, argument in definition.inputs.items():
        if argument.shape is None:
            given = workload.inputs.get(name)
            value = given.value if isinstance(given, ScalarInput) else number_of(definition, name, axes)
            # JSON writes a whole float without a point, and it would be an integer here.
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
    # A reference that writes to a buffer among its inputs would change the candidates' inputs.
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
    """Return the statement that names inputs on which only drawn values make a meaningful check.

    Values of eight bits have no room for other distributions; scores by which experts are chosen must have no ties,
    since any of them may be taken; probabilities must add up to 1.
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


_SAMPLED_BY = ("probs", "top_k", "top_p")
_INDEXED_BY = ("q_index_fp8", "k_index_cache_fp8", "weights", "seq_lens", "block_table")


def has_check(definition: Definition) -> bool:
    """Return True if a definition's outputs are checked by rules instead of compared with the reference's."""
    return definition.op_type == "sampling" or definition.name.startswith(TOP_K_INDEXER)


def require_sampling(definition: Definition) -> None:
    """Check that a sampling definition draws from `probs`, by `top_k`, `top_p` or neither.

    Raises:
        ConfigError: it does not.
    """
    shapes = {name: argument.shape for name, argument in definition.inputs.items()}
    row = (shapes.get("probs") or ())[:1]
    is_known = (
        len(shapes.get("probs") or ()) == len(("rows", "tokens"))
        and all(name in _SAMPLED_BY and (name == "probs" or shape == row) for name, shape in shapes.items())
        and [output.shape for output in definition.outputs.values()] == [row]
    )
    if not is_known:
        raise ConfigError(
            f"definition {definition.name!r} samples in a way that is not checked here; what is: inputs probs (rows, "
            "tokens), top_k and top_p (rows), or one or none of these, and one output of integers (rows)"
        )


def require_indexer(definition: Definition) -> None:
    """Check that an indexer's scores are those of packed keys.

    Raises:
        ConfigError: they are not.
    """
    if not definition.name.startswith(TOP_K_INDEXER) or tuple(definition.inputs) != _INDEXED_BY:
        raise ConfigError(
            f"definition {definition.name!r} returns the places of the largest scores in any order, which is checked "
            f"here for {TOP_K_INDEXER}… with the inputs {', '.join(_INDEXED_BY)} only"
        )


def check_of(definition: Definition) -> list[str]:
    """Return the lines of a problem file that check outputs; none if outputs are compared."""
    if not has_check(definition):
        return []
    arguments = ", ".join(definition.inputs)
    if definition.op_type != "sampling":
        return [*_function("check_outputs", arguments, f"drawn_outputs.wrong_indices({arguments}, outputs)")]
    options = "".join(f", {name}={name}" for name in definition.inputs if name != "probs")
    given = f"probs, outputs{options}"
    return [
        *_function("check_outputs", arguments, f"drawn_outputs.outside({given})"),
        *_function("positions", arguments, f"drawn_outputs.positions({given})"),
    ]


def _function(name: str, arguments: str, value: str) -> list[str]:
    return [
        "",
        "",
        f"def {name}({arguments}, outputs):",
        "    import drawn_outputs",
        "",
        "    outputs = outputs[0] if isinstance(outputs, (tuple, list)) else outputs",
        f"    return {value}",
    ]


TOP_K_INDEXER = "dsa_topk_indexer_fp8"
"""Prefix of the names of definitions that return the indices of the largest scores of packed keys."""
_SAMPLED = {"probs": "probabilities", "top_p": "parts"}
_NO_TORCH = frozenset(("float4_e2m1",))
_QUERIES, _KEYS = "qo_indptr", "kv_indptr"
_TOTALS = {"qo_indptr": "total_q", "kv_indptr": "num_kv_indices"}
"""Sums of offsets, where no constraint gives them."""
_MLA_NOPE = 128
"""Head size of DeepSeek's attention before its matrices are absorbed, which defines its scale."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the inputs are made."""

    before: tuple[str, ...]
    """Statements before the inputs."""
    made: dict[str, str]
    """Expression of each input that is a tensor."""


def plan_inputs(definition: Definition, recorded: Collection[str] = ()) -> Plan:
    """Return how each tensor is made.

    Args:
        definition: definition of the inputs.
        recorded: inputs with recorded tensors.

    Raises:
        ConfigError: the meaning of an integer is not known, or a dtype is not supported.
    """
    drawn = {name: argument for name, argument in definition.inputs.items() if name not in recorded}
    pointers = [name for name, argument in drawn.items() if _is_pointer(name, argument)]
    before = [line for name in pointers for line in _lengths_of(definition, name, pointers)]
    if pointers:
        first = _shape_of(definition.inputs[pointers[0]], definition)[0]
        before.append(f"order = drawn_inputs.shuffled({first} - 1)")
    made: dict[str, str] = {}
    for name, argument in definition.inputs.items():
        if argument.shape is None:
            continue
        if name in recorded:
            made[name] = f"drawn_inputs.recorded(recorded_inputs.TENSORS[workload, {name!r}])"
        elif name in pointers:
            made[name] = f"drawn_inputs.offsets({name}_lengths, order, torch.{argument.dtype})"
        else:
            made[name] = _expression(definition, name, argument)
    return Plan(before=tuple(before), made=made)


def number_of(definition: Definition, name: str, axes: Mapping[str, int]) -> int | float:
    """Return the value of a number that a workload leaves open. It is always the same, as tasks need.

    The scale of an attention is one over the root of its head's size; `routed_scaling_factor` is 2.5 as in DeepSeek-V3;
    offsets are 0; anything else is 1.
    """
    dtype = definition.inputs[name].dtype
    if name in {"sm_scale", "scale"}:
        sizes = [axes[axis] for axis in ("qk_dim", "head_dim", "head_size", "head_dim_qk") if axis in axes]
        if not sizes and "head_dim_kpe" in axes:
            sizes = [_MLA_NOPE + axes["head_dim_kpe"]]
        return sizes[0] ** -0.5 if sizes else 1.0
    if name == "routed_scaling_factor":
        return 2.5
    if dtype in FLOATING:
        return 1.0
    return 0 if "offset" in name else 1


def _is_pointer(name: str, argument: Argument) -> bool:
    is_one = argument.shape is not None and len(argument.shape) == 1 and argument.dtype in {"int32", "int64"}
    return is_one and (name.endswith("indptr") or name.startswith("cu_"))


def _lengths_of(definition: Definition, name: str, pointers: list[str]) -> list[str]:
    """Return the statement that splits the total of an array of offsets into parts."""
    ends = (last_value_of(constraint) for constraint in definition.constraints)
    total = next((end[0] for end in ends if end is not None and end[1] == name), _TOTALS.get(name, ""))
    if total not in definition.axes:
        raise ConfigError(
            f"definition {definition.name!r}: nothing says what {name!r} adds up to; "
            f"a constraint '… == {name}[-1].item()' does"
        )
    count = f"{_shape_of(definition.inputs[name], definition)[0]} - 1"
    least = ""
    if name == _KEYS and _QUERIES in pointers and "causal" in definition.name:
        page_size = _sized("page_size", definition) if "page_size" in definition.axes else "1"
        parts = f"{_QUERIES}_lengths"
        least = f", {parts}" if page_size == "1" else f", [-(-part // {page_size}) + 1 for part in {parts}]"
    return [f"{name}_lengths = drawn_inputs.lengths({_sized(total, definition)}, {count}{least})"]


def _expression(definition: Definition, name: str, argument: Argument) -> str:
    shape = _shape_of(argument, definition)
    sizes = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
    dtype = f"torch.{argument.dtype}"
    if argument.dtype in _NO_TORCH:
        raise ConfigError(f"definition {definition.name!r}: {name!r} is {argument.dtype}, which is not supported")
    if argument.dtype in FLOATING:
        kind = _SAMPLED.get(name, "normal") if definition.op_type == "sampling" else "normal"
        return f"drawn_inputs.{kind}({sizes}, {dtype})"
    if argument.dtype == "bool":
        return f"drawn_inputs.coins({sizes})"
    return _drawn_integers(definition, name, shape, sizes, dtype)


def _drawn_integers(definition: Definition, name: str, shape: list[str], sizes: str, dtype: str) -> str:
    """Return how an integer input that is not an array of offsets is made."""
    if below := _places(definition, name):
        return f"drawn_inputs.distinct({sizes}, {below}, {dtype})"
    if bounds := _range(definition, name):
        return f"drawn_inputs.whole({sizes}, {bounds[0]}, {bounds[1]}, {dtype})"
    if name == "top_k":
        return f"drawn_inputs.sizes({sizes}, 1, {_sized('vocab_size', definition)}, {dtype})"
    if dtype == "torch.int8" and definition.name.startswith(TOP_K_INDEXER):
        return f"drawn_inputs.packed_keys({sizes})"
    if dtype == "torch.int8" and len(shape) > 1:
        return f"drawn_inputs.whole({sizes}, -128, 127, {dtype})"
    raise ConfigError(
        f"definition {definition.name!r}: nothing says what the integers of {name!r} mean; "
        "put the recorded tensors (blob/) into the folder, or see the rules in docs/guides/flashinfer.md"
    )


def _places(definition: Definition, name: str) -> str:
    """Return the upper bound of an input's integers if they are distinct indices; empty: they are not."""
    if name == "sparse_indices":
        return f"{_sized('num_pages', definition)} * {_sized('page_size', definition)}"
    if name.endswith(("kv_indices", "page_indices")) or name.startswith("block_table"):
        return _sized("num_pages", definition)
    if name == "topk_ids":
        return _sized("num_experts", definition)
    for ending in ("_batch_indices", "_indices"):
        rows = definition.inputs.get(name.removesuffix(ending)) if name.endswith(ending) else None
        if rows is not None and rows.shape:
            return _shape_of(rows, definition)[0]
    return ""


def _range(definition: Definition, name: str) -> tuple[str, str] | None:
    """Return the range of an input's integers, both ends included, if its name implies one."""
    if name.endswith("last_page_len"):
        return "1", _sized("page_size", definition)
    if name == "positions":
        return "0", f"{_sized('max_seq_len', definition)} - 1"
    if name == "seq_lens":
        return "1", f"{_sized('max_num_pages', definition)} * {_sized('page_size', definition)}"
    return None


def _shape_of(argument: Argument, definition: Definition) -> list[str]:
    return [_sized(axis, definition) for axis in argument.shape or ()]


def _sized(axis: str, definition: Definition) -> str:
    """Return an axis as an expression: its value if that is constant, else its name."""
    if axis not in definition.axes:
        raise ConfigError(f"definition {definition.name!r} has no axis {axis!r}, which its integers are made by")
    constant = definition.const_axes.get(axis)
    return axis if constant is None else str(constant)
