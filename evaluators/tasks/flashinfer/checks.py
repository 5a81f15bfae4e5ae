"""Definitions whose outputs have more than one right value, and the functions by which their problem file checks them.

- `has_check(definition) -> bool`
- `require_sampling(definition)`, `require_indexer(definition)`: raise ConfigError
- `check_of(definition) -> list[str]`: lines of `check_outputs`, and of `positions` where outputs are random
"""

from __future__ import annotations

from evaluators.tasks.flashinfer.drawing import TOP_K_INDEXER
from evaluators.tasks.flashinfer.schema import Definition
from messages.base import ConfigError

_SAMPLED_BY = ("probs", "top_k", "top_p")
_INDEXED_BY = ("q_index_fp8", "k_index_cache_fp8", "weights", "seq_lens", "block_table")


def has_check(definition: Definition) -> bool:
    """Say whether a definition's outputs are not compared with the reference's, but checked for what they must be."""
    return definition.op_type == "sampling" or definition.name.startswith(TOP_K_INDEXER)


def require_sampling(definition: Definition) -> None:
    """Refuse a definition of sampling that draws otherwise than from `probs`, by `top_k`, `top_p` or neither.

    Raises:
        ConfigError: it does.
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
    """Refuse an indexer whose scores are not those of packed keys.

    Raises:
        ConfigError: they are not.
    """
    if not definition.name.startswith(TOP_K_INDEXER) or tuple(definition.inputs) != _INDEXED_BY:
        raise ConfigError(
            f"definition {definition.name!r} returns the places of the largest scores in any order, which is checked "
            f"here for {TOP_K_INDEXER}… with the inputs {', '.join(_INDEXED_BY)} only"
        )


def check_of(definition: Definition) -> list[str]:
    """Return the lines of a problem file that say what is right; none where outputs are compared."""
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
