"""Programs as stages over strided tensors: what the built-in rules understand of a reference.

A stage computes one tensor, row by row: a graph of element-wise operations and of reductions over columns. Every access
is affine in the stage's axes, so permuted, repeated, broadcast and sliced operands are strides and never copied. A
contraction is a stage of its own kind: the sum over columns of the products of two tensors. Tensors of role `value`
hold intermediate results: dense, row-major, float32 (float64 if any tensor of the program is).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["scalar", "row", "vector", "full"]
"""Dependence of a node's value: on nothing, the row, the column, or both."""

REDUCTIONS = frozenset({"sum", "max", "min"})
COSTLY = frozenset({"exp", "log", "log1p", "tanh", "erf", "gelu_erf", "sigmoid", "silu", "sqrt", "rsqrt", "div", "pow"})
"""Operations with results that are kept instead of computed twice."""


class NoRuleError(Exception):
    """The built-in rules do not cover something; the text names it."""


class TensorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor as the task's table lists it."""

    name: str
    role: Literal["input", "parameter", "output", "value"]
    shape: tuple[int, ...]
    dtype: str


class Term(msgspec.Struct, frozen=True, order=True):
    """`(dim // div % mod) * scale`, a digit of a dimension times a stride; `scale` is not 0, `mod` is above 1."""

    dim: int
    div: int
    mod: int
    scale: int


class Index(msgspec.Struct, frozen=True):
    """A sum of terms and an offset: a position within a tensor before axes are chosen."""

    offset: int = 0
    terms: tuple[Term, ...] = ()


def whole(dim: int, size: int) -> Index:
    """Return the position along a dimension."""
    return Index(0, (Term(dim, 1, size, 1),)) if size > 1 else Index()


def combined(indices: Iterable[Index], strides: Iterable[int]) -> Index:
    """Return the sum of `indices`, each times its stride."""
    pairs = list(zip(indices, strides, strict=True))
    terms = [Term(t.dim, t.div, t.mod, t.scale * stride) for index, stride in pairs if stride for t in index.terms]
    return Index(sum(index.offset * stride for index, stride in pairs), _merged(terms))


def part(index: Index, div: int, mod: int) -> Index:
    """Return `index // div % mod`.

    Raises:
        NoRuleError: the digits of the index do not end there.
    """
    if mod == 1:
        return Index()
    if index.offset or any(term.scale < 0 for term in index.terms):
        largest = index.offset + sum(term.scale * (term.mod - 1) for term in index.terms)
        if div == 1 and index.offset >= 0 and largest < mod and all(term.scale > 0 for term in index.terms):
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
        NoRuleError: it needs a digit that the replacement does not have.
    """
    parts = [part(given[term.dim], term.div, term.mod) for term in index.terms]
    found = combined(parts, [term.scale for term in index.terms])
    return Index(found.offset + index.offset, found.terms)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))


def identity(shape: Sequence[int]) -> tuple[Index, ...]:
    """Return the position of each element of a tensor in the tensor itself."""
    return tuple(whole(dim, size) for dim, size in enumerate(shape))


def _split(terms: Iterable[Term], place: int) -> Iterator[Term]:
    """Split the terms with digits on both sides of a place."""
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
    """Join neighbouring digits of a dimension if their strides fit, and drop digits that are always 0."""
    found: list[Term] = []
    for term in sorted(term for term in terms if term.mod > 1):
        last = found[-1] if found and found[-1].dim == term.dim else None
        if last and term.div == last.div * last.mod and term.scale == last.scale * last.mod:
            found[-1] = Term(last.dim, last.div, last.mod * term.mod, last.scale)
        elif last and (last.div, last.mod) == (term.div, term.mod):
            found[-1] = Term(last.dim, last.div, last.mod, last.scale + term.scale)
        else:
            found.append(term)
    return tuple(term for term in found if term.scale)


class Access(msgspec.Struct, frozen=True):
    """An element of a tensor in memory: `offset` plus the stride of each axis of a stage times the position there."""

    name: str
    """The tensor; empty: the position itself, not an element."""
    offset: int
    strides: tuple[int, ...]
    """In elements, one per axis of the stage; 0 where the axis does not matter."""


class Node(msgspec.Struct, frozen=True):
    """One value. Operands are positions of earlier nodes."""

    op: str
    """`const`, `load`, `index` (a position, as of `arange`), a reduction, or an element-wise operation. Comparisons are
    1.0 or 0.0; `where` takes its second operand where the first is not 0."""
    args: tuple[int, ...] = ()
    kind: Kind = "scalar"
    value: float = 0.0
    """Value of a `const`."""
    access: Access | None = None
    """Access of a `load` or `index`."""


def joined(kinds: Iterable[Kind]) -> Kind:
    """Return the dependence of a value with operands that depend on `kinds`."""
    found = set(kinds)
    on_row, on_column = bool(found & {"row", "full"}), bool(found & {"vector", "full"})
    return "full" if on_row and on_column else "row" if on_row else "vector" if on_column else "scalar"


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """For each row: element-wise operations and reductions over its columns, of which one result is stored."""

    rows: tuple[int, ...]
    """Sizes of the axes that number the rows, outermost first; empty: a single row."""
    columns: tuple[int, ...]
    """Sizes of the axes within a row; for a contraction the axes of the sum."""
    nodes: tuple[Node, ...]
    """Its nodes; strides of their accesses are along `rows`, then along `columns`."""
    output: int
    """Node that is stored."""
    target: Access
    is_contraction: bool = False
    """True if the nodes are the sum of the products of two loads, for each of the rows."""

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
        strides = zip(self.target.strides[len(self.rows) :], self.columns, strict=True)
        return any(stride for stride, size in strides if size > 1)

    @property
    def reads(self) -> tuple[Access, ...]:
        """Accesses to tensors; for a contraction its two operands."""
        return tuple(node.access for node in self.nodes if node.op == "load" and node.access is not None)

    @property
    def flops(self) -> int:
        """Multiplications and additions of a contraction."""
        return 2 * math.prod(self.axes) if self.is_contraction else 0

    def levels(self) -> list[int]:
        """Return, per node, the number of passes over a row that must be complete before it can be computed."""
        found: list[int] = []
        for node in self.nodes:
            below = max((found[arg] for arg in node.args), default=0)
            found.append(below + 1 if node.op in REDUCTIONS else below)
        return found

    def needed(self, targets: Iterable[int], kinds: Iterable[Kind], stops: frozenset[int] = frozenset()) -> list[int]:
        """Return the nodes of some kinds that `targets` depend on, in order, without those below `stops`."""
        found: set[int] = set()
        waiting, wanted = list(targets), set(kinds)
        while waiting:
            index = waiting.pop()
            if index not in found and self.nodes[index].kind in wanted:
                found.add(index)
                waiting += () if index in stops else self.nodes[index].args
        return sorted(found)

    def over(self, rows: tuple[int, ...], columns: tuple[int, ...], change: Callable[[Access], Access]) -> Stage:
        """Return the stage over other axes, with all accesses changed alike."""
        nodes = tuple(
            node if node.access is None else msgspec.structs.replace(node, access=change(node.access))
            for node in self.nodes
        )
        return msgspec.structs.replace(self, rows=rows, columns=columns, nodes=nodes, target=change(self.target))

    def collapsed(self) -> Stage:
        """Return the stage with neighbouring axes joined if every access treats them as one."""
        sizes, split = self.axes, len(self.rows)
        accesses = [*(node.access for node in self.nodes if node.access is not None), self.target]
        ends = [
            at for at in range(len(sizes))
            if at + 1 in {split, len(sizes)}
            or any(access.strides[at] != sizes[at + 1] * access.strides[at + 1] for access in accesses)
        ]  # fmt: skip
        begins = [0, *(end + 1 for end in ends)]
        joint = [math.prod(sizes[begin : end + 1]) for begin, end in zip(begins, ends, strict=False)]
        count = sum(end < split for end in ends)
        return self.over(
            tuple(joint[:count]),
            tuple(joint[count:]),
            lambda access: Access(access.name, access.offset, tuple(access.strides[end] for end in ends)),
        )

    def split(self, inner: int) -> Stage:
        """Return the stage with an axis boundary among its rows at `inner` rows from their end.

        Raises:
            NoRuleError: no axis can be cut there.
        """
        reach = 1
        for at in reversed(range(len(self.rows))):
            size = self.rows[at]
            if reach == inner:
                return self
            if reach * size > inner:
                low = inner // reach
                if inner % reach or size % low:
                    break
                rows = (*self.rows[:at], size // low, low, *self.rows[at + 1 :])
                return self.over(rows, self.columns, lambda access: _cut(access, at, low))  # noqa: B023 - used at once
            reach *= size
        if reach != inner:
            raise NoRuleError(f"axes that cannot be cut at {inner}")
        return self

    def with_axis(self, at: int) -> Stage:
        """Return the stage with another axis of size 1 among its rows."""
        return self.over(
            (*self.rows[:at], 1, *self.rows[at:]),
            self.columns,
            lambda access: Access(access.name, access.offset, (*access.strides[:at], 0, *access.strides[at:])),
        )


def _cut(access: Access, at: int, low: int) -> Access:
    strides = (*access.strides[:at], access.strides[at] * low, *access.strides[at:])
    return Access(access.name, access.offset, strides)


def refined(
    dims: Sequence[int], first: int, raws: Sequence[tuple[str, Index]]
) -> tuple[tuple[int, ...], tuple[int, ...], list[Access]]:
    """Cut dimensions into axes along which all accesses are affine.

    Args:
        dims: sizes of the dimensions.
        first: number of leading dimensions that number the rows.
        raws: tensors, each with its index expression.

    Returns:
        Sizes of the axes of rows and of columns, and the accesses.

    Raises:
        NoRuleError: two accesses split a dimension by factors of which neither divides the other.
    """
    axes = [(dim, low, high // low) for dim, size in enumerate(dims) for low, high in _digits(dim, size, raws)]
    accesses = []
    for name, index in raws:
        strides = [
            sum(
                term.scale * (low // term.div)
                for term in index.terms
                if dim == term.dim and term.div <= low and low * size <= term.div * term.mod
            )
            for dim, low, size in axes
        ]
        accesses.append(Access(name, index.offset, tuple(strides)))
    rows = tuple(size for dim, _, size in axes if dim < first)
    return rows, tuple(size for dim, _, size in axes if dim >= first), accesses


def _digits(dim: int, size: int, raws: Sequence[tuple[str, Index]]) -> list[tuple[int, int]]:
    """Return the digits of a dimension, the most significant first, as (place, place of the next one)."""
    if size == 1:
        return []
    terms = [term for _, index in raws for term in index.terms if term.dim == dim]
    chain = sorted({1, size, *(t.div for t in terms), *(min(t.div * t.mod, size) for t in terms)})
    if any(high % low for low, high in itertools.pairwise(chain)):
        raise NoRuleError(f"a dimension of size {size} that is cut at {chain[1:-1]}")
    return list(itertools.pairwise(chain))[::-1]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A computation, stage by stage; every stage reads inputs, parameters and targets of earlier stages."""

    tensors: tuple[TensorInfo, ...]
    """Inputs in call order, parameters, outputs (all as the task lists them), then values."""
    stages: tuple[Stage, ...]

    @property
    def contractions(self) -> tuple[Stage, ...]:
        """The contractions among the stages."""
        return tuple(stage for stage in self.stages if stage.is_contraction)

    @property
    def row_stages(self) -> tuple[Stage, ...]:
        """The stages that are not contractions."""
        return tuple(stage for stage in self.stages if not stage.is_contraction)

    @property
    def arguments(self) -> tuple[TensorInfo, ...]:
        """The task's tensors in the order of a call: inputs and parameters, then outputs."""
        given = [tensor for tensor in self.tensors if tensor.role in {"input", "parameter"}]
        return (*given, *(tensor for tensor in self.tensors if tensor.role == "output"))

    @property
    def real(self) -> str:
        """The dtype of the computation."""
        return "float64" if any(tensor.dtype == "float64" for tensor in self.tensors) else "float32"

    @property
    def summary(self) -> str:
        """The program in words."""
        kinds = ", ".join(
            f"a contraction of {'x'.join(map(str, stage.rows))} over {'x'.join(map(str, stage.columns))}"
            if stage.is_contraction
            else f"{math.prod(stage.rows)} rows of {math.prod(stage.columns)} columns"
            f"{f' with reductions: {len(stage.reductions)}' if stage.reductions else ''}"
            for stage in self.stages
        )
        values = sum(math.prod(tensor.shape) for tensor in self.tensors if tensor.role == "value")
        return (
            f"stages: {len(self.stages)} ({kinds}), {sum(stage.flops for stage in self.stages) / 1e6:.1f} MFLOP in "
            f"contractions, {values} elements of intermediate results"
        )

    @property
    def sources(self) -> dict[str, TensorInfo]:
        """Tensors that stages may read, by name: inputs, parameters, values."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.role != "output"}

    @property
    def targets(self) -> dict[str, TensorInfo]:
        """Tensors that stages write, by name: values, outputs. An output may have the name of an input."""
        return {tensor.name: tensor for tensor in self.tensors if tensor.role in {"output", "value"}}
