"""What the built-in rules know of torch beyond rows: views, products of tensors, comparisons and masks."""

from __future__ import annotations

import math
import string
from collections.abc import Callable

from actors.llm.offline.graph import NoRuleError
from actors.llm.offline.rules import RULES, Arguments, Signature
from actors.llm.offline.stages.index import whole
from actors.llm.offline.stages.products import contracted, einsum, product
from actors.llm.offline.stages.tracing import StagedTracer, View
from actors.llm.offline.tracing import Shape, Tracer, Value

StagedRule = Callable[[StagedTracer, Arguments], Value]


def _staged(names: str, rule: StagedRule, **defaults: Value) -> Signature:
    """Return a signature whose rule needs more than rows."""

    def checked(tracer: Tracer, a: Arguments) -> Value:
        if not isinstance(tracer, StagedTracer):
            raise NoRuleError("tensors that do not share rows and columns")
        return rule(tracer, a)

    return Signature(names, checked, **defaults)


def _elementwise(op: str, names: str) -> Signature:
    return _staged(names, lambda tracer, a: tracer.elementwise(op, *(a[name] for name in names.split())))


def _whole_numbers(value: Value, what: str) -> Shape:
    """Return a tuple of whole numbers; a single one counts as a tuple."""
    found = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(item, int) for item in found):
        raise NoRuleError(f"{value!r} as {what}")
    return tuple(item for item in found if isinstance(item, int))


def _dim(value: Value, rank: int) -> int:
    if not isinstance(value, int) or not -rank <= value < rank:
        raise NoRuleError(f"{value!r} as one of {rank} dimensions")
    return value % rank


def _permuted(tracer: StagedTracer, view: View, order: Shape) -> View:
    places = [whole(order.index(dim), size) for dim, size in enumerate(view.shape)]
    return tracer.viewed(view, tuple(view.shape[dim] for dim in order), places)


def _permute(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    order = tuple(_dim(dim, len(view.shape)) for dim in _whole_numbers(a["dims"], "an order of dimensions"))
    if sorted(order) != list(range(len(view.shape))):
        raise NoRuleError(f"`permute` to {order}")
    return _permuted(tracer, view, order)


def _transpose(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    rank = len(view.shape)
    one, other = _dim(a["dim0"], rank), _dim(a["dim1"], rank)
    swapped = {one: other, other: one}
    return _permuted(tracer, view, tuple(swapped.get(dim, dim) for dim in range(rank)))


def _reshape(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    shape = _whole_numbers(a["shape"], "a shape")
    rest = math.prod(size for size in shape if size != -1)
    count = math.prod(view.shape)
    return tracer.reshaped(view, tuple(count // max(rest, 1) if size == -1 else size for size in shape))


def _view_as(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.reshaped(a["input"], tracer.tensor(a["other"]).shape)


def _flatten(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    rank = len(view.shape)
    start, end = _dim(a["start_dim"], rank), _dim(a["end_dim"], rank)
    merged = math.prod(view.shape[start : end + 1])
    return tracer.reshaped(view, (*view.shape[:start], merged, *view.shape[end + 1 :]))


def _unflatten(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    sizes = _whole_numbers(a["sizes"], "sizes")
    return _reshape(tracer, {"input": view, "shape": (*view.shape[:dim], *sizes, *view.shape[dim + 1 :])})


def _expand(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    wanted = _whole_numbers(a["size"], "a size")
    skipped = len(wanted) - len(view.shape)
    shape = tuple(
        view.shape[dim - skipped] if size == -1 and dim >= skipped else size for dim, size in enumerate(wanted)
    )
    return tracer.expanded(view, shape)


def _expand_as(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.expanded(tracer.tensor(a["input"]), tracer.tensor(a["other"]).shape)


def _repeat_interleave(tracer: StagedTracer, a: Arguments) -> Value:
    """Each position of a dimension several times in a row: a new dimension behind it, merged with it."""
    view = tracer.tensor(a["input"])
    if not isinstance(a["repeats"], int):
        raise NoRuleError(f"`repeat_interleave` by {a['repeats']!r}")
    dim = _dim(a["dim"], len(view.shape))
    behind = tracer.reshaped(view, (*view.shape[: dim + 1], 1, *view.shape[dim + 1 :]))
    split = (*view.shape[: dim + 1], a["repeats"], *view.shape[dim + 1 :])
    merged = (*view.shape[:dim], view.shape[dim] * a["repeats"], *view.shape[dim + 1 :])
    return tracer.reshaped(tracer.expanded(behind, split), merged)


def _repeat(tracer: StagedTracer, a: Arguments) -> Value:
    """All of a dimension several times: a new dimension before it, merged with it."""
    view = tracer.tensor(a["input"])
    repeats = _whole_numbers(a["repeats"], "repeats")
    sizes = (*(1,) * (len(repeats) - len(view.shape)), *view.shape)
    before = tracer.reshaped(view, tuple(size for pair in zip((1,) * len(sizes), sizes, strict=True) for size in pair))
    split = tuple(size for pair in zip(repeats, sizes, strict=True) for size in pair)
    merged = tuple(count * size for count, size in zip(repeats, sizes, strict=True))
    return tracer.reshaped(tracer.expanded(before, split), merged)


def _pieces(tracer: StagedTracer, view: View, dim: int, sizes: Shape) -> Value:
    found: list[Value] = []
    start = 0
    for size in sizes:
        items = [(None, None, None)] * dim + [(start, start + size, None)]
        found.append(tracer.indexed(view, items))
        start += size
    return tuple(found)


def _chunk(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    (count,) = _whole_numbers(a["chunks"], "a number of chunks")
    size = -(-view.shape[dim] // count)
    return _split(tracer, {"input": view, "split_size": size, "dim": dim})


def _split(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    size, total = a["split_size"], view.shape[dim]
    if isinstance(size, int):
        return _pieces(tracer, view, dim, tuple(min(size, total - start) for start in range(0, total, size)))
    return _pieces(tracer, view, dim, _whole_numbers(size, "sizes"))


def _unbind(tracer: StagedTracer, a: Arguments) -> Value:
    view = tracer.tensor(a["input"])
    dim = _dim(a["dim"], len(view.shape))
    before = [(None, None, None)] * dim
    return tuple(tracer.indexed(view, [*before, position]) for position in range(view.shape[dim]))


def _arange(tracer: StagedTracer, a: Arguments) -> Value:
    start, end, step = (a["start"], a["end"], a["step"])
    if end is None:
        start, end = 0, start
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)):
        raise NoRuleError(f"`arange` from {start!r} to {end!r} by {step!r}")
    numbers: Value = tracer.arange(len(range(start, end, step)))
    numbers = numbers if step == 1 else tracer.binary("mul", numbers, step)
    return numbers if start == 0 else tracer.binary("add", numbers, start)


def _full(tracer: StagedTracer, a: Arguments) -> Value:
    shape = _whole_numbers(a["size"], "a size")
    return tracer.expanded(tracer.tensor(a["fill_value"]), shape)


def _full_like(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.expanded(tracer.tensor(a["fill_value"]), tracer.tensor(a["input"]).shape)


def _filled(value: float, names: str) -> Signature:
    if names.startswith("size"):
        return _staged(names, lambda tracer, a: _full(tracer, {**a, "fill_value": value}), dtype=None, device=None)
    return _staged(names, lambda tracer, a: _full_like(tracer, {**a, "fill_value": value}), dtype=None, device=None)


def _masked_fill(tracer: StagedTracer, a: Arguments) -> Value:
    return tracer.elementwise("where", a["mask"], a["value"], a["input"])


def _triangle(op: str) -> Signature:
    """`tril` and `triu`: what lies on the wrong side of a diagonal becomes 0."""

    def rule(tracer: StagedTracer, a: Arguments) -> Value:
        view = tracer.tensor(a["input"])
        rows, columns = view.shape[-2:]
        row = tracer.binary("add", tracer.reshaped(tracer.arange(rows), (rows, 1)), a["diagonal"])
        return tracer.elementwise("where", tracer.elementwise(op, tracer.arange(columns), row), view, 0.0)

    return _staged("input diagonal", rule, diagonal=0)


def _linear(tracer: StagedTracer, a: Arguments) -> Value:
    view, weight = tracer.tensor(a["input"]), tracer.tensor(a["weight"])
    names = string.ascii_letters[: len(view.shape)]
    out = (*names[:-1], "out")[: len(view.shape) - 2 + len(weight.shape)]
    found = contracted(tracer, view, weight, (tuple(names), ("out", names[-1])[-len(weight.shape) :], out))
    return found if a["bias"] is None else tracer.binary("add", found, a["bias"])


def _added_product(tracer: StagedTracer, a: Arguments) -> Value:
    """`addmm` and `baddbmm`."""
    found: Value = product(tracer, a["mat1"], a["mat2"])
    found = found if a["alpha"] == 1 else tracer.binary("mul", found, a["alpha"])
    added = a["input"] if a["beta"] == 1 else tracer.binary("mul", a["input"], a["beta"])
    return tracer.binary("add", found, added)


def _einsum(tracer: StagedTracer, a: Arguments) -> Value:
    operands = a["first"] if isinstance(a["first"], tuple) else tuple(a[name] for name in ("first", "second", "third"))
    given = [tracer.tensor(operand) for operand in operands if operand is not None]
    if not isinstance(a["equation"], str):
        raise NoRuleError("`einsum` without an equation")
    return einsum(tracer, a["equation"], given)


def _outer(tracer: StagedTracer, a: Arguments) -> Value:
    left, right = tracer.tensor(a["input"]), tracer.tensor(a["vec2"])
    return tracer.binary("mul", tracer.reshaped(left, (*left.shape, 1)), right)


def _attention(tracer: StagedTracer, a: Arguments) -> Value:
    """`scaled_dot_product_attention`: softmax(q k^T * scale + mask) v."""
    q, k, v = (tracer.tensor(a[name]) for name in ("query", "key", "value"))
    if a["dropout_p"]:
        raise NoRuleError("`scaled_dot_product_attention` with dropout")
    if a["enable_gqa"]:
        repeats = q.shape[-3] // k.shape[-3]
        k, v = (
            tracer.tensor(_repeat_interleave(tracer, {"input": item, "repeats": repeats, "dim": -3})) for item in (k, v)
        )
    rank = len(k.shape)
    scores: Value = product(tracer, q, _transpose(tracer, {"input": k, "dim0": rank - 2, "dim1": rank - 1}))
    scale = a["scale"] if a["scale"] is not None else q.shape[-1] ** -0.5
    scores = tracer.binary("mul", scores, scale)
    if a["is_causal"]:
        seen = tracer.elementwise(
            "le", tracer.arange(k.shape[-2]), tracer.reshaped(tracer.arange(q.shape[-2]), (q.shape[-2], 1))
        )
        scores = tracer.elementwise("where", seen, scores, -math.inf)
    if a["attn_mask"] is not None:
        mask = tracer.tensor(a["attn_mask"])
        if tracer.is_truth(mask):
            scores = tracer.elementwise("where", mask, scores, -math.inf)
        else:
            scores = tracer.binary("add", scores, mask)
    weights = RULES["softmax"].call("softmax", tracer, [scores, -1], {})
    return product(tracer, weights, v)


STAGED_RULES: dict[str, Signature] = {
    **{name: _elementwise(name, "input other") for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    **{name: _elementwise(name, "input other") for name in ("logical_and", "logical_or")},
    "bitwise_and": _elementwise("logical_and", "input other"),
    "bitwise_or": _elementwise("logical_or", "input other"),
    "logical_not": _staged("input", lambda tracer, a: tracer.elementwise("eq", a["input"], 0.0)),
    "where": _staged(
        "condition input other", lambda tracer, a: tracer.elementwise("where", a["condition"], a["input"], a["other"])
    ),
    "masked_fill": _staged("input mask value", _masked_fill),
    "tril": _triangle("le"),
    "triu": _triangle("ge"),
    "arange": _staged("start end step dtype device", _arange, end=None, step=1, dtype=None, device=None),
    "full": _staged("size fill_value dtype device", _full, dtype=None, device=None),
    "full_like": _staged("input fill_value dtype device", _full_like, dtype=None, device=None),
    "zeros": _filled(0.0, "size dtype device"),
    "ones": _filled(1.0, "size dtype device"),
    "zeros_like": _filled(0.0, "input dtype device"),
    "ones_like": _filled(1.0, "input dtype device"),
    "bool": _staged("input", lambda tracer, a: tracer.elementwise("ne", a["input"], 0.0)),
    "permute": _staged("input dims", _permute),
    "transpose": _staged("input dim0 dim1", _transpose),
    "swapaxes": _staged("input dim0 dim1", _transpose),
    "t": _staged("input", lambda tracer, a: _transpose(tracer, {**a, "dim0": 0, "dim1": -1})),
    "reshape": _staged("input shape", _reshape),
    "view": _staged("input shape", _reshape),
    "view_as": _staged("input other", _view_as),
    "flatten": _staged("input start_dim end_dim", _flatten, start_dim=0, end_dim=-1),
    "unflatten": _staged("input dim sizes", _unflatten),
    "expand": _staged("input size", _expand),
    "expand_as": _staged("input other", _expand_as),
    "repeat_interleave": _staged("input repeats dim", _repeat_interleave),
    "repeat": _staged("input repeats", _repeat),
    "chunk": _staged("input chunks dim", _chunk, dim=0),
    "split": _staged("input split_size dim", _split, dim=0),
    "unbind": _staged("input dim", _unbind, dim=0),
    "linear": _staged("input weight bias", _linear, bias=None),
    "matmul": _staged("input other", lambda tracer, a: product(tracer, a["input"], a["other"])),
    "mm": _staged("input mat2", lambda tracer, a: product(tracer, a["input"], a["mat2"])),
    "bmm": _staged("input mat2", lambda tracer, a: product(tracer, a["input"], a["mat2"])),
    "mv": _staged("input vec", lambda tracer, a: product(tracer, a["input"], a["vec"])),
    "dot": _staged("input tensor", lambda tracer, a: product(tracer, a["input"], a["tensor"])),
    "outer": _staged("input vec2", _outer),
    "addmm": _staged("input mat1 mat2 beta alpha", _added_product, beta=1, alpha=1),
    "baddbmm": _staged("input mat1 mat2 beta alpha", _added_product, beta=1, alpha=1),
    "einsum": _staged("equation first second third", _einsum, second=None, third=None),
    "scaled_dot_product_attention": _staged(
        "query key value attn_mask dropout_p is_causal scale enable_gqa", _attention,
        attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
    ),
}  # fmt: skip
"""By torch's name, without its namespace."""
