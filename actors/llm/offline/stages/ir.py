"""Staged programs: contractions and row stages, with their indices, axes and masks.

Views (permuted, split, merged, repeated, sliced dimensions) are such expressions and never copies. A term is
`(dim // div % mod) * scale`: one digit of a dimension in a mixed radix, times a stride.

A stage computes one tensor. It is either a **contraction**

    target[outer] = sum over `summed` of left[...] * right[...]

or a **row stage**: an element-wise graph with reductions over columns, as in `graph.Program`, whose loads may be
strided. Every access is affine in the stage's axes, so transposed, repeated, broadcast and sliced operands need no
copies: a stride of 0 means that the axis does not matter. Axes are as few as the strides allow: neighbours that every
access walks through alike are one. Tensors of role `value` hold intermediate results: dense row-major float32 (float64
if any tensor of the program is float64), to be allocated by the program or kept on chip where stages are fused.
Integers (positions, masks) are read as numbers of the compute type: exact up to 2^24 in float32.

A column is left out if what the stage stores there is 0 and no reduction is changed by it. Each node's value in such a
column is worked out from the masked one: the maximum of what is left over is finite, so exp(-inf - maximum) is 0, and
so is whatever it is multiplied with. Not covered: rows of which everything is masked; they must be computed in full.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Access, Node, NoRuleError, Program, TensorInfo


class Term(msgspec.Struct, frozen=True, order=True):
    """`(dim // div % mod) * scale`; `scale` is not 0 and `mod` is larger than 1."""

    dim: int
    div: int
    mod: int
    scale: int


class Index(msgspec.Struct, frozen=True):
    """A sum of terms and an offset."""

    offset: int = 0
    terms: tuple[Term, ...] = ()


def whole(dim: int, size: int) -> Index:
    """Return the position along a dimension."""
    return Index(0, (Term(dim, 1, size, 1),)) if size > 1 else Index()


def combined(indices: Iterable[Index], strides: Iterable[int]) -> Index:
    """Return the sum of `indices`, each times its stride."""
    offset = 0
    terms: list[Term] = []
    for index, stride in zip(indices, strides, strict=True):
        offset += index.offset * stride
        terms += [Term(term.dim, term.div, term.mod, term.scale * stride) for term in index.terms if stride]
    return Index(offset, _merged(terms))


def part(index: Index, div: int, mod: int) -> Index:
    """Return `index // div % mod`.

    Raises:
        NoRuleError: the digits of the index do not end there.
    """
    if mod == 1:
        return Index()
    if index.offset or any(term.scale < 0 for term in index.terms):
        if div == 1 and index.offset >= 0 and _largest(index) < mod and all(term.scale > 0 for term in index.terms):
            return index
        raise NoRuleError("a slice of a dimension that is split or merged afterwards")
    digits = sorted(_split(_split(index.terms, div), div * mod), key=lambda term: term.scale)
    reach = 0
    for term in digits:
        if term.scale <= reach:
            raise NoRuleError("dimensions that overlap when they are split or merged")
        reach += term.scale * (term.mod - 1)
    kept = [term for term in digits if div <= term.scale < div * mod]
    return Index(0, _merged(Term(term.dim, term.div, term.mod, term.scale // div) for term in kept))


def substituted(index: Index, given: Sequence[Index]) -> Index:
    """Return `index` with each dimension replaced by an expression over other dimensions.

    Raises:
        NoRuleError: a digit is asked for that the replacement does not have.
    """
    parts = [part(given[term.dim], term.div, term.mod) for term in index.terms]
    found = combined(parts, [term.scale for term in index.terms])
    return Index(found.offset + index.offset, found.terms)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))


def _largest(index: Index) -> int:
    return index.offset + sum(term.scale * (term.mod - 1) for term in index.terms)


def _split(terms: Iterable[Term], place: int) -> Iterator[Term]:
    """Cut the terms whose digits lie on both sides of a place."""
    for term in terms:
        low = place // term.scale
        if not term.scale < place < term.scale * term.mod:
            yield term
            continue
        if place % term.scale or term.mod % low:
            raise NoRuleError("dimensions that are split or merged at sizes that do not divide them")
        yield Term(term.dim, term.div, low, term.scale)
        yield Term(term.dim, term.div * low, term.mod // low, place)


def _merged(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Join neighbouring digits of a dimension whose strides fit, and drop digits that are always 0."""
    found: list[Term] = []
    for term in sorted(term for term in terms if term.mod > 1):
        last = found[-1] if found else None
        if (
            last is not None
            and last.dim == term.dim
            and term.div == last.div * last.mod
            and term.scale == last.scale * last.mod
        ):
            found[-1] = Term(last.dim, last.div, last.mod * term.mod, last.scale)
        elif last is not None and (last.dim, last.div, last.mod) == (term.dim, term.div, term.mod):
            found[-1] = Term(last.dim, last.div, last.mod, last.scale + term.scale)
        else:
            found.append(term)
    return tuple(term for term in found if term.scale)


Sizes = tuple[list[int], list[int]]
"""Sizes of the axes of a stage's first and second part: rows and columns, or outer and summed ones."""


def refined(dims: Sequence[int], first: int, raws: Sequence[tuple[str, Index]]) -> tuple[Sizes, list[Access]]:
    """Cut dimensions into axes along which all accesses are affine.

    Args:
        dims: sizes of the dimensions.
        first: how many of them make the first part.
        raws: tensors, and where in them.

    Raises:
        NoRuleError: two accesses cut a dimension at places that do not divide each other.
    """
    cuts = [_cuts(dim, size, raws) for dim, size in enumerate(dims)]
    axes = [(dim, low, high // low) for dim, places in enumerate(cuts) for low, high in places]
    sizes: Sizes = ([], [])
    for dim, _, size in axes:
        sizes[0 if dim < first else 1].append(size)
    accesses = []
    for name, index in raws:
        strides = [0] * len(axes)
        for term in index.terms:
            for position, (dim, low, size) in enumerate(axes):
                if dim == term.dim and term.div <= low and low * size <= term.div * term.mod:
                    strides[position] += term.scale * (low // term.div)
        accesses.append(Access(name, index.offset, tuple(strides)))
    return sizes, accesses


def _cuts(dim: int, size: int, raws: Sequence[tuple[str, Index]]) -> list[tuple[int, int]]:
    """Return the digits of a dimension, the most significant first, as (place, place of the next one)."""
    if size == 1:
        return []
    places = {1, size}
    for _, index in raws:
        for term in index.terms:
            if term.dim == dim:
                places |= {term.div, min(term.div * term.mod, size)}
    chain = sorted(places)
    if any(high % low for low, high in itertools.pairwise(chain)):
        raise NoRuleError(f"a dimension of size {size} that is cut at {chain[1:-1]}")
    return list(itertools.pairwise(chain))[::-1]


def collapsed_contraction(stage: Contraction) -> Contraction:
    """Return the stage with as few axes as possible."""
    accesses = [stage.left, stage.right, stage.target]
    sizes, accesses = _collapsed((list(stage.outer), list(stage.summed)), accesses)
    return Contraction(
        outer=tuple(sizes[0]), summed=tuple(sizes[1]), left=accesses[0], right=accesses[1], target=accesses[2]
    )


def collapsed_rows(stage: RowStage) -> RowStage:
    """Return the stage with as few axes as possible."""
    used = [node.access for node in stage.nodes if node.access is not None]
    sizes, accesses = _collapsed((list(stage.rows), list(stage.columns)), [*used, stage.target])
    return _with_accesses(stage, sizes, accesses)


def split_outer(stage: Contraction | RowStage, inner: int) -> Contraction | RowStage:
    """Return the stage with an axis boundary among its rows (or outer axes) at `inner` elements from their end.

    Raises:
        NoRuleError: no axis can be cut there.
    """
    outer = stage.outer if isinstance(stage, Contraction) else stage.rows
    reach = 1
    for position in reversed(range(len(outer))):
        if reach == inner:
            return stage
        if reach * outer[position] > inner:
            return _split_axis(stage, position, inner // reach) if inner % reach == 0 else _uncut(inner)
        reach *= outer[position]
    return stage if reach == inner else _uncut(inner)


def _uncut(inner: int) -> Contraction | RowStage:
    raise NoRuleError(f"axes that cannot be cut at {inner}")


def _split_axis(stage: Contraction | RowStage, position: int, low: int) -> Contraction | RowStage:
    """Cut one of the first axes into two, the second of size `low`."""

    def cut(access: Access) -> Access:
        stride = access.strides[position]
        strides = (*access.strides[:position], stride * low, stride, *access.strides[position + 1 :])
        return Access(access.name, access.offset, strides)

    outer = stage.outer if isinstance(stage, Contraction) else stage.rows
    if outer[position] % low:
        _uncut(low)
    sizes = (*outer[:position], outer[position] // low, low, *outer[position + 1 :])
    if isinstance(stage, Contraction):
        return msgspec.structs.replace(
            stage, outer=sizes, left=cut(stage.left), right=cut(stage.right), target=cut(stage.target)
        )
    nodes = tuple(
        node if node.access is None else msgspec.structs.replace(node, access=cut(node.access)) for node in stage.nodes
    )
    return msgspec.structs.replace(stage, rows=sizes, nodes=nodes, target=cut(stage.target))


def _with_accesses(stage: RowStage, sizes: Sizes, accesses: Sequence[Access]) -> RowStage:
    left = iter(accesses)
    nodes: list[Node] = [
        node if node.access is None else msgspec.structs.replace(node, access=next(left)) for node in stage.nodes
    ]
    return RowStage(
        rows=tuple(sizes[0]), columns=tuple(sizes[1]), nodes=tuple(nodes), output=stage.output, target=next(left)
    )


def _collapsed(sizes: Sizes, accesses: Sequence[Access]) -> tuple[Sizes, list[Access]]:
    """Join neighbouring axes of a part that every access walks through as if they were one."""
    axes = [(part, size) for part in (0, 1) for size in sizes[part]]
    strides = [list(access.strides) for access in accesses]
    position = len(axes) - 1
    while position > 0:
        (part, outer), (other, inner) = axes[position - 1], axes[position]
        if part == other and all(found[position - 1] == inner * found[position] for found in strides):
            axes[position - 1 : position + 1] = [(part, outer * inner)]
            for found in strides:
                del found[position - 1]
        position -= 1
    kept: Sizes = ([size for part, size in axes if part == 0], [size for part, size in axes if part == 1])
    return kept, [
        Access(access.name, access.offset, tuple(found)) for access, found in zip(accesses, strides, strict=True)
    ]


class RowStage(msgspec.Struct, frozen=True, kw_only=True):
    """For each row: element-wise operations and reductions over its columns."""

    rows: tuple[int, ...]
    """Sizes of the axes that number the rows, outermost first; none: a single row."""
    columns: tuple[int, ...]
    """Sizes of the axes within a row."""
    nodes: tuple[Node, ...]
    """As in `graph.Program`; `load` and `index` say by `Node.access` what they read; its strides are those along
    `rows`, then along `columns`. `Node.kind` says which of the two kinds of axes a value depends on."""
    output: int
    """Node that is stored: of kind `full` or `vector`, or `row` (one element per row) or `scalar`."""
    target: Access

    @property
    def axes(self) -> tuple[int, ...]:
        """Sizes of all axes, in the order of strides."""
        return self.rows + self.columns

    @property
    def reductions(self) -> tuple[int, ...]:
        """Positions of the reductions."""
        return tuple(index for index, node in enumerate(self.nodes) if node.op in REDUCTIONS)

    @property
    def stores_columns(self) -> bool:
        """True if the target has an element per column; else it has one per row."""
        return any(
            stride for stride, size in zip(self.target.strides[len(self.rows) :], self.columns, strict=True) if size > 1
        )

    @property
    def reads(self) -> tuple[Access, ...]:
        """Elements of tensors that are read."""
        return tuple(node.access for node in self.nodes if node.op == "load" and node.access is not None)


class Contraction(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of products of two tensors; accumulated in float32 (float64 if any tensor of the program is)."""

    outer: tuple[int, ...]
    """Sizes of the axes of the target, outermost first. An axis along which both operands have a stride is a batch,
    along which only `left` has one belongs to m, only `right`: to n."""
    summed: tuple[int, ...]
    """Sizes of the axes that are summed over."""
    left: Access
    """Strides along `outer`, then along `summed`."""
    right: Access
    target: Access

    @property
    def axes(self) -> tuple[int, ...]:
        """Sizes of all axes, in the order of strides."""
        return self.outer + self.summed

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * math.prod(self.axes)

    @property
    def reads(self) -> tuple[Access, ...]:
        """Elements of tensors that are read."""
        return (self.left, self.right)


Stage: TypeAlias = RowStage | Contraction


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be computed, stage by stage; every stage reads inputs, parameters and targets of earlier stages."""

    tensors: tuple[TensorInfo, ...]
    """Inputs in call order, parameters, outputs (all as the task lists them), then values."""
    stages: tuple[Stage, ...]

    @property
    def contractions(self) -> tuple[Contraction, ...]:
        """The contractions among the stages."""
        return tuple(stage for stage in self.stages if isinstance(stage, Contraction))

    @property
    def row_stages(self) -> tuple[RowStage, ...]:
        """The row stages."""
        return tuple(stage for stage in self.stages if isinstance(stage, RowStage))

    @property
    def flops(self) -> int:
        """Multiplications and additions of the contractions."""
        return sum(stage.flops for stage in self.contractions)

    @property
    def summary(self) -> str:
        """What it is, in words."""
        kinds = ", ".join(
            f"a contraction of {'x'.join(map(str, stage.outer))} over {'x'.join(map(str, stage.summed))}"
            if isinstance(stage, Contraction)
            else f"{math.prod(stage.rows)} rows of {math.prod(stage.columns)} columns"
            f"{f' with reductions: {len(stage.reductions)}' if stage.reductions else ''}"
            for stage in self.stages
        )
        values = sum(math.prod(tensor.shape) for tensor in self.tensors if tensor.role == "value")
        return (
            f"stages: {len(self.stages)} ({kinds}), {self.flops / 1e6:.1f} MFLOP in contractions, "
            f"{values} elements of intermediate results"
        )

    @property
    def sources(self) -> dict[str, TensorInfo]:
        """What stages may read, by name: inputs, parameters, values."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.role != "output"}

    @property
    def targets(self) -> dict[str, TensorInfo]:
        """What stages write, by name: values, outputs. An output may be called like an input."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.role in {"output", "value"}}


AnyProgram: TypeAlias = Program | Staged
"""What the rules can read a reference as."""


_NEGLIGIBLE = -1e30
"""What programs write for minus infinity; exponentials of it are 0 next to any ordinary maximum."""
_NEUTRAL = {"sum": 0.0, "max": -math.inf, "min": math.inf}


class Bound(msgspec.Struct, frozen=True):
    """Columns from a place on are left out: the whole part of node `place`, plus `more`."""

    place: int
    """A node of kind row or scalar."""
    more: int
    """1 if the column at the place itself is still used."""


def bound_of(stage: RowStage) -> Bound | None:
    """Return which columns a stage leaves out; None if it leaves none out, or for no reason known here."""
    for index, node in enumerate(stage.nodes):
        found = _masking(stage, node)
        if found is not None and _is_left_out(stage, index, found[1]):
            return found[0]
    return None


def _masking(stage: RowStage, node: Node) -> tuple[Bound, float] | None:
    """Read `where(column > place, -inf, x)` and the like."""
    if node.op != "where":
        return None
    condition, then, other = (stage.nodes[arg] for arg in node.args)
    if then.op == "const" and then.value <= _NEGLIGIBLE:
        bound = _compared(stage, condition, beyond=True)
        return None if bound is None else (bound, -math.inf)
    if other.op == "const" and other.value <= _NEGLIGIBLE:
        bound = _compared(stage, condition, beyond=False)
        return None if bound is None else (bound, -math.inf)
    return None


def _compared(stage: RowStage, condition: Node, *, beyond: bool) -> Bound | None:
    """Return where the columns begin for which a condition holds (`beyond`) or fails."""
    if condition.op == "eq" and stage.nodes[condition.args[1]] == Node("const"):
        return _compared(stage, stage.nodes[condition.args[0]], beyond=not beyond)
    mirrored = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}
    if condition.op not in mirrored:
        return None
    op, (left, right) = condition.op, condition.args
    if not _is_column(stage, left):
        op, left, right = mirrored[op], right, left
    if not _is_column(stage, left) or stage.nodes[right].kind not in {"row", "scalar"}:
        return None
    wanted = {"gt": 1, "ge": 0} if beyond else {"le": 1, "lt": 0}
    return Bound(right, wanted[op]) if op in wanted else None


def _is_column(stage: RowStage, index: int) -> bool:
    access = stage.nodes[index].access
    return (
        stage.nodes[index].op == "index"
        and access is not None
        and access.offset == 0
        and len(stage.columns) == 1
        and access.strides == (*(0,) * len(stage.rows), 1)
    )


def _is_left_out(stage: RowStage, masked: int, value: float) -> bool:
    found: list[float | None] = []
    for index, node in enumerate(stage.nodes):
        if index == masked:
            found.append(value)
            continue
        args = [found[arg] for arg in node.args]
        if node.op in REDUCTIONS:
            if stage.nodes[node.args[0]].kind in {"full", "vector"} and args[0] != _NEUTRAL[node.op]:
                return False
            found.append(None)
        else:
            found.append(_propagated(node.op, args))
    return found[stage.output] == 0.0


def _propagated(op: str, args: list[float | None]) -> float | None:
    """Return an operation's value in a masked column; None: an ordinary number, which may be anything finite."""
    match op, args:
        case "exp", [value] if value == -math.inf:
            return 0.0
        case (("add" | "sub"), [value, None]) if value == -math.inf:
            return -math.inf
        case "add", [None, value] if value == -math.inf:
            return -math.inf
        case "mul", [left, right] if left == 0.0 or right == 0.0:
            return 0.0
        case "div", [left, None] if left == 0.0:
            return 0.0
        case _:
            return None
