"""How each input of a definition is made: one expression of Python an input, over the workload's axes.

What a workload says to be random is drawn as upstream draws it (N(0, 1)), except integers (and what is sampled from:
`probs` after a softmax, half the rows sharper; `top_p` between 0 and 1, where upstream has N(0, 1)):
upstream draws those between -1024 and 1024, which no page table can be. Here an integer's name and the definition's
constraints say what it is; what they do not say is refused, never guessed. The rules, first that fits:

| name                                     | contents                                                              |
|------------------------------------------|-----------------------------------------------------------------------|
| `*indptr`, `cu_*`                        | offsets, from 0 to the axis that a constraint equates with the last   |
| `sparse_indices`                         | positions in the pages, different in each row                         |
| `*kv_indices`, `*page_indices`, `block_table*` | pages, each once while there are enough                         |
| `X_indices`, `X_batch_indices`           | rows of input X, each once while there are enough                     |
| `*last_page_len`                         | 1 to `page_size`                                                      |
| `positions`                              | 0 to `max_seq_len` - 1                                                |
| `seq_lens`                               | 1 to what the row's pages hold                                        |
| `topk_ids`                               | experts, different in each row                                        |
| `top_k`                                  | 1 to `vocab_size`, all orders of magnitude alike                      |
| int8 of a top-k indexer                  | pages of packed keys in fp8, and their scales                         |
| int8 of two dimensions or more           | any byte: contents, no places                                         |

In causal attention a sequence has at least as many keys as queries, where the totals allow it.

- `plan_inputs(definition: Definition, recorded) -> Plan`, raises ConfigError
- `number_of(definition: Definition, name: str, axes) -> int | float`: of a number that a workload leaves to chance
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from evaluators.tasks.flashinfer.constraints import last_value_of
from evaluators.tasks.flashinfer.schema import FLOATING, Argument, Definition
from messages.base import ConfigError

TOP_K_INDEXER = "dsa_topk_indexer_fp8"
"""What definitions begin with that return the places of the largest scores of packed keys."""
_SAMPLED = {"probs": "probabilities", "top_p": "parts"}
_NO_TORCH = frozenset(("float4_e2m1",))
_QUERIES, _KEYS = "qo_indptr", "kv_indptr"
_TOTALS = {"qo_indptr": "total_q", "kv_indptr": "num_kv_indices"}
"""What offsets add up to where no constraint says it."""
_MLA_NOPE = 128
"""Of DeepSeek's attention before its matrices are absorbed, by which its scale is defined."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How inputs are made."""

    before: tuple[str, ...]
    """Statements that come first."""
    made: dict[str, str]
    """Expression of each input that is a tensor."""


def plan_inputs(definition: Definition, recorded: Collection[str] = ()) -> Plan:
    """Return how each tensor is made.

    Args:
        definition: whose inputs they are.
        recorded: those that come from recorded tensors.

    Raises:
        ConfigError: nothing says what an integer means, or a dtype is not known here.
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
    """Return what a number is that a workload leaves to chance: one value, since tasks have no others.

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
    """Return the statement that cuts the total of one array of offsets into its parts."""
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
    return _integers(definition, name, shape, sizes, dtype)


def _integers(definition: Definition, name: str, shape: list[str], sizes: str, dtype: str) -> str:
    """Return how an integer input is made that is no array of offsets."""
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
    """Return below what the integers of an input lie that say places, each once; empty: they are none."""
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
    """Return between what the integers of an input lie, both included, if its name says it."""
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
    """Return an axis as it stands in an expression: its value if that is always the same, else its name.

    Raises:
        ConfigError: there is no such axis.
    """
    if axis not in definition.axes:
        raise ConfigError(f"definition {definition.name!r} has no axis {axis!r}, which its integers are made by")
    constant = definition.const_axes.get(axis)
    return axis if constant is None else str(constant)
