"""What an input's values are drawn from: from the words of a `task.toml` to an expression of torch.

    normal, normal(MEAN, DEVIATION)   floating dtypes; what stands where nothing is said
    uniform, uniform(LOW, HIGH)       floating dtypes; [0, 1) where nothing is said
    zeros, ones                       any dtype
    integers(LOW, HIGH)               any dtype but bool; LOW ≤ value < HIGH, both expressions over dimensions
    permutation                       integers; one dimension: 0 … n - 1 in another order each time
    bernoulli(P)                      any dtype; 1 with probability P, else 0

- `drawn(name, distribution, dtype, shape, where) -> text`, raises ConfigError
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from evaluators.tasks.own.expressions import parse
from messages.base import ConfigError

_CALL = re.compile(r"(?P<name>[a-z]+)(?:\((?P<arguments>.*)\))?")


class _Kind(msgspec.Struct, frozen=True):
    counts: tuple[int, ...]
    """How many numbers may stand in its parentheses."""
    fits: Callable[[str], bool]
    """Whether it can be drawn in a dtype."""
    text: str
    """The expression, with `{shape}`, `{dtype}`, `{0}`, `{1}`."""
    defaults: tuple[str, ...] = ()


def _is_floating(dtype: str) -> bool:
    return "float" in dtype


def _is_integer(dtype: str) -> bool:
    return "int" in dtype


KINDS: Mapping[str, _Kind] = {
    "normal": _Kind((0, 2), _is_floating, "torch.randn({shape}, dtype={dtype}) * ({1}) + ({0})", ("0.0", "1.0")),
    "uniform": _Kind((0, 2), _is_floating, "torch.empty({shape}, dtype={dtype}).uniform_({0}, {1})", ("0.0", "1.0")),
    "zeros": _Kind((0,), lambda _: True, "torch.zeros({shape}, dtype={dtype})"),
    "ones": _Kind((0,), lambda _: True, "torch.ones({shape}, dtype={dtype})"),
    "integers": _Kind((2,), lambda dtype: dtype != "bool", "torch.randint({0}, {1}, {shape}).to({dtype})"),
    "permutation": _Kind((0,), _is_integer, "torch.randperm(*{shape}).to({dtype})"),
    "bernoulli": _Kind((1,), lambda _: True, "(torch.rand({shape}) < ({0})).to({dtype})"),
}


def drawn(distribution: str | None, dtype: str, shape: Sequence[str], where: str) -> tuple[str, tuple[ast.expr, ...]]:
    """Return the expression that draws an input, and those over dimensions that stand in it.

    Args:
        distribution: as the document has it; null: nothing is said.
        dtype: torch's name without the prefix.
        shape: expressions over dimensions.
        where: file and key, for messages.

    Raises:
        ConfigError: there is no such distribution, or not of this dtype or shape.
    """
    if distribution is None:
        if not _is_floating(dtype):
            raise ConfigError(
                f'{where}: an input of dtype {dtype} needs a distribution: "integers(0, 10)", "bernoulli(0.5)", '
                '"permutation", "zeros" or "ones"'
            )
        distribution = "normal"
    found = _CALL.fullmatch(distribution.strip())
    kind = KINDS.get(found["name"]) if found else None
    if found is None or kind is None:
        raise ConfigError(f"{where}: unknown distribution {distribution!r}; there are: {', '.join(KINDS)}")
    given = _arguments(found["arguments"] or "", where)
    if len(given) not in kind.counts:
        counts = " or ".join(map(str, kind.counts))
        raise ConfigError(f"{where}: {found['name']} takes {counts} numbers in parentheses, not {len(given)}")
    if not kind.fits(dtype):
        raise ConfigError(f"{where}: {found['name']} cannot be drawn in dtype {dtype}")
    if found["name"] == "permutation" and len(shape) != 1:
        raise ConfigError(f"{where}: a permutation has one dimension, not {len(shape)}")
    sizes = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
    texts = [ast.unparse(one) for one in given] or list(kind.defaults)
    if texts == ["0.0", "1.0"] and found["name"] == "normal":
        return f"torch.randn({sizes}, dtype=torch.{dtype})", ()
    return kind.text.format(*texts, shape=sizes, dtype=f"torch.{dtype}"), given


def _arguments(text: str, where: str) -> tuple[ast.expr, ...]:
    if not text.strip():
        return ()
    found = parse(f"min({text}, 0)", where)
    return tuple(found.args[:-1]) if isinstance(found, ast.Call) else ()
