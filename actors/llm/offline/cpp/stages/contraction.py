"""Writes a contraction for a block of rows: plain loops, or a kernel that keeps a tile of the result in registers.

Two kernels: **lanes**, where a vector holds neighbouring columns of the result and one operand (the other one is
broadcast, or lies alike), and **dot**, where a vector holds neighbouring terms of the sum. An operand whose columns are
not neighbours can be packed: copied into panels of as many columns as a tile has, in the order of the sum.
"""

from __future__ import annotations

import math

import msgspec

from actors.llm.offline.cpp.expressions import Writer
from actors.llm.offline.cpp.rows import indented
from actors.llm.offline.cpp.stages.rows import Place, Places
from actors.llm.offline.graph import Access
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Contraction


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """An operand in panels."""

    name: str
    outer: tuple[int, ...]
    """Strides of the row axes, in panels of the whole operand; 0 where it does not depend on them."""
    fill: tuple[str, ...]
    """Statements that allocate and fill it."""


class ContractionWriter:
    """One contraction of a group under construction."""

    def __init__(
        self, stage: Contraction, number: int, plan: Plan, writer: Writer, places: Places, written: frozenset[str]
    ) -> None:
        """Decide how it is written.

        Args:
            stage: what to write; its first axes are the rows of the group.
            number: makes names unique.
            plan: how.
            writer: of expressions.
            places: where the tensors lie.
            written: values that the group itself computes.
        """
        self._number = number
        self._plan = plan
        self._writer = writer
        self._places = places
        self._rows = len(places.rows)
        self._stage = stage if len(stage.outer) > self._rows else _with_column(stage, self._rows)
        self._columns = self._stage.outer[self._rows :]
        self._left, self._right = (self._place(access) for access in (self._stage.left, self._stage.right))
        self._to = places.place(self._stage.target, self._rows, written=True)
        self._vectors = plan.vectorise and not plan.wide
        self._packed = self._packable(written) if self._vectors and plan.pack else ""
        self.kind = self._kind()

    @property
    def summed(self) -> tuple[int, ...]:
        """Sizes of the axes of the sum, in the order of the loops."""
        return tuple(self._stage.summed[axis] for axis in self._order)

    def sums_along(self, name: str) -> bool:
        """Say whether the last loop of the sum runs along the columns of value `name`."""
        for place, access in ((self._left, self._stage.left), (self._right, self._stage.right)):
            if access.name == name:
                return self._sum_strides(place)[-1] == 1 and not any(place.columns[: len(self._columns)])
        return False

    def _place(self, access: Access) -> Place:
        return self._places.place(access, self._rows)

    def _lane(self, place: Place) -> int:
        """Return an operand's stride along the last axis of the columns."""
        return place.columns[len(self._columns) - 1]

    @property
    def _order(self) -> list[int]:
        """The axes of the sum in the order of the loops: those along which operands are neighbours last."""
        count = len(self._columns)
        axes = range(len(self._stage.summed))
        operands = (self._left, self._right)
        return sorted(axes, key=lambda axis: sum(place.columns[count + axis] == 1 for place in operands))

    def _sum_strides(self, place: Place) -> list[int]:
        return [place.columns[len(self._columns) + axis] for axis in self._order]

    def _packable(self, written: frozenset[str]) -> str:
        """Return which operand is packed: `left`, `right`, or none."""
        for name, place, other in (("right", self._right, self._left), ("left", self._left, self._right)):
            access = self._stage.left if name == "left" else self._stage.right
            single = not any(place.columns[: len(self._columns) - 1])
            fits = self._lane(place) != 0 and place.row == 0 and single and self._lane(other) in {0, 1}
            if fits and access.name not in written:
                return name
        return ""

    def _kind(self) -> str:
        if not self._vectors:
            return "plain"
        unpacked = [
            self._lane(place) for name, place in (("left", self._left), ("right", self._right)) if name != self._packed
        ]
        if self._lane(self._to) == 1 and all(stride in {0, 1} for stride in unpacked):
            return "lanes"
        if all(self._sum_strides(place)[-1:] == [1] for place in (self._left, self._right)):
            return "dot"
        return "plain"

    # What stands before the group.

    def packing(self, *, threads: bool) -> list[str]:
        """Return the statements that pack an operand; none if none is packed."""
        if not self._packed or self.kind != "lanes":
            return []
        access = self._stage.left if self._packed == "left" else self._stage.right
        outer = self._packed_outer(access)
        place = self._left if self._packed == "left" else self._right
        size = self._columns[-1]
        depth = math.prod(self.summed)
        source = self._places.place(access, self._rows)
        loops, index = self._nest(self._sum_strides(source))
        lane = self._lane(place)
        offset = " + ".join(
            filter(
                None,
                [
                    str(access.offset) if access.offset else "",
                    *(f"d{axis} * {access.strides[axis]}" for axis, _ in outer),
                ],
            )
        )
        decode: list[str] = ["int64_t rest = panel / PANELS;"] if outer else []
        for axis, count in reversed(outer):
            decode += [f"const int64_t d{axis} = rest % {count};", f"rest /= {count};"]
        body = [
            *decode,
            "const int64_t first = panel % PANELS * WIDTH;",
            f"{self._writer.real}* panel_to = {self._panels}.data() + panel * {depth} * WIDTH;",
            f"const {source.kind}* __restrict from = {source.pointer}{f' + {offset}' if offset else ''};",
            *_nested(
                loops,
                [
                    "for (int64_t lane = 0; lane < WIDTH; ++lane)",
                    f"    *panel_to++ = first + lane < {size} ? widen(from[(first + lane) * {lane}{index}]) : zero;",
                ],
            ),
        ]
        storage = "static std::vector" if self._plan.reuse else "std::vector"
        count = math.prod(count for _, count in outer)
        panels, width = f"PANELS_{self._number}", f"WIDTH_{self._number}"
        return [
            f"constexpr int64_t {width} = LANES * {self._plan.lanes};",
            f"constexpr int64_t {panels} = ({size} + {width} - 1) / {width};",
            f"{storage}<{self._writer.real}> {self._panels}({count * depth} * {panels} * {width});",
            *(["#pragma omp parallel for schedule(static)"] if threads else []),
            f"for (int64_t panel = 0; panel < {count} * {panels}; ++panel) {{",
            *indented(line.replace("PANELS", panels).replace("WIDTH", width) for line in body),
            "}",
        ]  # fmt: skip

    @property
    def _panels(self) -> str:
        return f"panels_{self._number}"

    def _packed_outer(self, access: Access) -> list[tuple[int, int]]:
        """Return the row axes that a packed operand depends on, and their sizes."""
        return [(axis, self._places.rows[axis]) for axis in range(self._rows) if access.strides[axis]]

    # The kernel.

    def kernel(self) -> list[str]:
        """Return the definition of the kernel; none for plain loops."""
        if self.kind == "plain":
            return []
        a, b, to = self._left, self._right, self._to
        head = (
            f"static __attribute__((noinline)) void contraction_{self._number}("
            f"const {self._kind_of('left')}* __restrict a, const {self._kind_of('right')}* __restrict b, "
            f"{to.kind}* __restrict to, const int64_t depth, [[maybe_unused]] const int64_t valid) {{"
        )
        if self.kind == "lanes":
            return ["template <int M, int V, int N>", head, *indented(self._lanes_body()), "}"]
        loops, _ = self._nest([0] * len(self.summed), last="")
        product = f"sum[m][v] += {self._dot_operand('a', a)} * {self._dot_operand('b', b)};"
        rest = f"rest[m][v] += {self._dot_operand('a', a, single=True)} * {self._dot_operand('b', b, single=True)};"
        column = self._lane(to)
        body = [
            "lanes<LANES> sum[M][V] = {};",
            "real rest[M][V] = {};",
            *_nested(
                loops,
                [
                    "const int64_t whole = depth - depth % LANES;",
                    "for (int64_t k = 0; k < whole; k += LANES) {",
                    *indented(_tile(product)),
                    "}",
                    "for (int64_t k = whole; k < depth; ++k) {",
                    *indented(_tile(rest)),
                    "}",
                ],
            ),
            *_tile(f"to[m * {to.row} + v * {column}] = narrow<{to.kind}>(total<LANES>(sum[m][v]) + rest[m][v]);"),
        ]
        return ["template <int M, int V>", head, *indented(body), "}"]

    def _lanes_body(self) -> list[str]:
        loops, _ = self._nest([0] * len(self.summed), last="depth")
        product = f"sum[m][v] += {self._lanes_operand('a', 'left')} * {self._lanes_operand('b', 'right')};"
        return [
            "lanes<N> sum[M][V] = {};",
            *_nested(loops, _tile(product)),
            *_tile(f"store<N>(to + m * {self._to.row} + v * N, sum[m][v], valid - v * N);"),
        ]

    def _kind_of(self, side: str) -> str:
        if side == self._packed and self.kind == "lanes":
            return self._writer.real
        return (self._left if side == "left" else self._right).kind

    def _lanes_operand(self, name: str, side: str) -> str:
        place = self._left if side == "left" else self._right
        if side == self._packed:
            strides = [math.prod(self.summed[axis + 1 :]) for axis in range(len(self.summed))]
            _, index = self._nest([stride * self._plan.lanes for stride in strides], times="LANES")
            return f"load<N>({name}{index} + v * N)"
        _, index = self._nest(self._sum_strides(place))
        row = f" + m * {place.row}" if place.row else ""
        if self._lane(place) == 0:
            return f"widen({name}[0{row}{index}])"
        return f"load<N>({name}{row}{index} + v * N)"

    def _dot_operand(self, name: str, place: Place, *, single: bool = False) -> str:
        strides = self._sum_strides(place)
        _, index = self._nest([*strides[:-1], 0])
        row = f" + m * {place.row}" if place.row else ""
        column = f" + v * {self._lane(place)}" if self._lane(place) else ""
        return f"widen({name}[k{row}{column}{index}])" if single else f"load<LANES>({name} + k{row}{column}{index})"

    def _nest(self, strides: list[int], *, last: str | None = None, times: str = "") -> tuple[list[str], str]:
        """Return the heads of the loops of the sum, and the offset within an operand.

        Args:
            strides: of the operand along the axes of the sum.
            last: what the last loop runs to; empty: it is left out; None: its size.
            times: a C++ factor of all strides.
        """
        sizes = self.summed
        heads = [f"for (int64_t k{axis} = 0; k{axis} < {size}; ++k{axis})" for axis, size in enumerate(sizes)]
        if last is not None and heads:
            final = len(sizes) - 1
            heads[-1:] = [f"for (int64_t k{final} = 0; k{final} < {last}; ++k{final})"] if last else []
        factor = f" * {times}" if times else ""
        index = "".join(f" + k{axis} * {stride}{factor}" for axis, stride in enumerate(strides) if stride)
        return heads, index

    # What stands in the block.

    def lines(self, *, columns: str = "", depth: str = "") -> list[str]:
        """Return the statements for the rows of a block.

        Args:
            columns: C++ expression of how many columns to compute, if not all.
            depth: how far the last loop of the sum goes, if not to its end.
        """
        end = columns or str(self._columns[-1])
        deep = depth or str(self.summed[-1] if self.summed else 1)
        pointers = [self._declared("a", "left"), self._declared("b", "right"), self._to.declared("to")]
        heads, offsets = self._column_loops()
        if self.kind == "plain":
            return [*pointers, *_nested(heads, self._plain(offsets, end, deep))]
        calls = self._lanes_calls(offsets, end, deep) if self.kind == "lanes" else self._dot_calls(offsets, end, deep)
        return [*pointers, *_nested(heads, calls)]

    def _declared(self, name: str, side: str) -> str:
        access = self._stage.left if side == "left" else self._stage.right
        if side != self._packed or self.kind != "lanes":
            return self._place(access).declared(name)
        outer = self._packed_outer(access)
        terms = []
        reach = 1
        for axis, size in reversed(outer):
            terms.append(f"o{axis} * {reach}")
            reach *= size
        block = f"PANELS_{self._number} * {math.prod(self.summed)} * WIDTH_{self._number}"
        start = f" + ({' + '.join(terms)}) * {block}" if terms else ""
        return f"const {self._writer.real}* __restrict {name} = {self._panels}.data(){start};"

    def _column_loops(self) -> tuple[list[str], dict[str, str]]:
        """Return the loops over all axes of the columns but the last, and the offsets of the pointers in them."""
        heads = [
            f"for (int64_t c{axis} = 0; c{axis} < {size}; ++c{axis})" for axis, size in enumerate(self._columns[:-1])
        ]
        offsets = {}
        for name, place in (("a", self._left), ("b", self._right), ("to", self._to)):
            strides = place.columns[: len(self._columns) - 1]
            offsets[name] = "".join(f" + c{axis} * {stride}" for axis, stride in enumerate(strides) if stride)
        return heads, offsets

    def _plain(self, offsets: dict[str, str], end: str, depth: str) -> list[str]:
        def element(name: str, place: Place) -> str:
            _, index = self._nest(self._sum_strides(place))
            lane = f" + c * {self._lane(place)}" if self._lane(place) else ""
            return f"widen({name}[u * {place.row}{offsets[name]}{lane}{index}])"

        loops, _ = self._nest([], last=depth)
        kind = self._writer.accumulator
        value = f"static_cast<{kind}>({element('a', self._left)}) * {element('b', self._right)}"
        return [
            "for (int64_t u = 0; u < count; ++u)",
            f"for (int64_t c = 0; c < {end}; ++c) {{",
            *indented([
                f"{kind} sum = 0;",
                *_nested(loops, [f"sum += {value};"]),
                f"to[u * {self._to.row}{offsets['to']} + c * {self._lane(self._to)}] = "
                f"narrow<{self._to.kind}>(static_cast<real>(sum));",
            ]),
            "}",
        ]  # fmt: skip

    def _lanes_calls(self, offsets: dict[str, str], end: str, depth: str) -> list[str]:
        vectors = self._plan.lanes
        width = f"LANES * {vectors}"
        if self._packed:
            loop = self._rows_loop(offsets, f"{vectors}, LANES", f"{end} - n", depth)
            return [f"for (int64_t n = 0; n < {end}; n += {width}) {{", *indented(loop), "}"]
        lines = ["int64_t n = 0;"]
        steps = [(width, f"{vectors}, LANES")]
        steps += [("LANES", "1, LANES")] if vectors > 1 else []
        steps += [(f"(LANES / {part})", f"1, LANES / {part}") for part in (2, 4)]
        steps += [("1", "1, 1")]
        for step, template in steps:
            loop = self._rows_loop(offsets, template, step, depth)
            lines += [f"for (; n + {step} <= {end}; n += {step}) {{", *indented(loop), "}"]
        return lines

    def _dot_calls(self, offsets: dict[str, str], end: str, depth: str) -> list[str]:
        columns = self._plan.lanes
        loop = self._rows_loop(offsets, str(columns), "0", depth)
        lines = ["int64_t n = 0;", f"for (; n + {columns} <= {end}; n += {columns}) {{", *indented(loop), "}"]
        if columns > 1:
            lines += [f"for (; n < {end}; ++n) {{", *indented(self._rows_loop(offsets, "1", "0", depth)), "}"]
        return lines

    def _rows_loop(self, offsets: dict[str, str], template: str, valid: str, depth: str) -> list[str]:
        """Return the loops over the rows of the block, tile by tile, then the rest."""
        arguments = []
        for name, place, side in (("a", self._left, "left"), ("b", self._right, "right"), ("to", self._to, "")):
            lane = str(math.prod(self.summed)) if side and side == self._packed else str(self._lane(place))
            column = f" + n * {lane}" if lane != "0" else ""
            row = f" + u * {place.row}" if place.row else ""
            extra = "" if side and side == self._packed else offsets[name]
            arguments.append(f"{name}{extra}{row}{column}")
        call = f"contraction_{self._number}<{{}}, {template}>({', '.join(arguments)}, {depth}, {valid});"
        lines = ["int64_t u = 0;"]
        rows = sorted({self._plan.tile, max(1, self._plan.tile // 2), 1}, reverse=True)
        for tile in rows:
            step = "++u" if tile == 1 else f"u += {tile}"
            test = "u < count" if tile == 1 else f"u + {tile} <= count"
            lines += [f"for (; {test}; {step})", f"    {call.format(tile)}"]
        return lines


def _with_column(stage: Contraction, rows: int) -> Contraction:
    """Return the stage with an axis of size 1 for its columns."""

    def wider(access: Access) -> Access:
        return Access(access.name, access.offset, (*access.strides[:rows], 0, *access.strides[rows:]))

    return msgspec.structs.replace(
        stage, outer=(*stage.outer, 1), left=wider(stage.left), right=wider(stage.right), target=wider(stage.target)
    )


def _tile(statement: str) -> list[str]:
    return ["UNROLLED for (int m = 0; m < M; ++m)", f"    UNROLLED for (int v = 0; v < V; ++v) {statement}"]


def _nested(heads: list[str], body: list[str]) -> list[str]:
    """Return loops around statements."""
    if not heads:
        return ["{", *indented(body), "}"] if len(body) > 1 else body
    return [*heads[:-1], f"{heads[-1]} {{", *indented(body), "}"]
