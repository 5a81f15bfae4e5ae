"""Contractions in C++, for a block of rows: plain loops, or a kernel that keeps a tile of the result in registers.

Two kernels: **lanes**, where a vector contains neighbouring columns of the result and of one operand (the other operand
is broadcast, or has the same layout), and **dot**, where a vector contains neighbouring terms of the sum. An operand
with columns that are not contiguous can be packed: copied into panels as wide as a tile, in the order of the sum.
"""

from __future__ import annotations

import math

from actors.llm.offline.cpp.expressions import Writer, indented
from actors.llm.offline.cpp.rows import Place, Places, times
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages import Stage


class ContractionWriter:
    """One contraction of a group: `a`, `b` are its operands, `n` is a column of the result, `k0` an axis of the sum."""

    def __init__(
        self, stage: Stage, number: int, plan: Plan, writer: Writer, places: Places, written: frozenset[str]
    ) -> None:
        """Choose the form of the code.

        Args:
            stage: its first axes are the rows of the group.
            number: makes names unique.
            plan: plan of the program.
            writer: writer of expressions.
            places: places of the tensors.
            written: values that the group itself computes.
        """
        self._number, self._plan, self._writer = number, plan, writer
        self._rows = places.rows
        stage = stage if len(stage.rows) > len(self._rows) else stage.with_axis(len(self._rows))
        self._columns = stage.rows[len(self._rows) :]
        self._accesses = dict(zip("ab", stage.reads, strict=True))
        self._operands = {name: places.place(access) for name, access in self._accesses.items()}
        self._to = places.place(stage.target, written=True)
        count = len(self._columns)
        self._order = sorted(
            range(len(stage.columns)),
            key=lambda axis: sum(place.columns[count + axis] == 1 for place in self._operands.values()),
        )
        """Axes of the sum in the order of the loops; axes along which operands are contiguous come last."""
        self._summed = tuple(stage.columns[axis] for axis in self._order)
        vectors = plan.vectorise and not plan.wide
        self._packed = self._packable(written) if vectors and plan.pack else ""
        self._kind = self._best_kind() if vectors else "plain"
        self._packed = self._packed if self._kind == "lanes" else ""

    def sums_along(self, name: str) -> bool:
        """Return True if the last loop of the sum runs along the columns of value `name`."""
        for operand, access in self._accesses.items():
            if access.name == name:
                place = self._operands[operand]
                return self._sum_strides(place)[-1:] == [1] and not any(place.columns[: len(self._columns)])
        return False

    def _lane(self, place: Place) -> int:
        """Return the stride from one column of the result to the next."""
        return place.columns[len(self._columns) - 1]

    def _sum_strides(self, place: Place) -> list[int]:
        return [place.columns[len(self._columns) + axis] for axis in self._order]

    def _packable(self, written: frozenset[str]) -> str:
        """Return the operand that is packed; empty: none."""
        for name, other in ("ba", "ab"):
            place = self._operands[name]
            is_single = not any(place.columns[: len(self._columns) - 1])
            fits = self._lane(place) and not place.row and is_single and self._lane(self._operands[other]) in {0, 1}
            if fits and self._accesses[name].name not in written:
                return name
        return ""

    def _best_kind(self) -> str:
        lanes = [self._lane(place) for name, place in self._operands.items() if name != self._packed]
        if self._lane(self._to) == 1 and all(stride in {0, 1} for stride in lanes):
            return "lanes"
        is_dot = all(self._sum_strides(place)[-1:] == [1] for place in self._operands.values())
        return "dot" if is_dot else "plain"

    def packing(self) -> list[str]:
        """Return the statements that pack an operand, before the group; none if none is packed."""
        if not self._packed:
            return []
        access, place = self._accesses[self._packed], self._operands[self._packed]
        outer = self._packed_outer()
        size, depth, lane = self._columns[-1], math.prod(self._summed), self._lane(place)
        offset = [str(access.offset)] if access.offset else []
        offset += [times(f"d{axis}", access.strides[axis]) for axis, _ in outer]
        decode = ["int64_t rest = panel / PANELS;"] if outer else []
        for axis, count in reversed(outer):
            decode += [f"const int64_t d{axis} = rest % {count};", f"rest /= {count};"]
        element = f"from[(first + lane) * {lane}{_index(self._sum_strides(place))}]"
        body = [
            *decode,
            "const int64_t first = panel % PANELS * WIDTH;",
            f"real* panel_to = panels_{self._number}.data() + panel * {depth} * WIDTH;",
            f"const {place.kind}* __restrict from = {' + '.join([place.pointer, *offset])};",
            *_nested(
                self._heads(),
                [
                    "for (int64_t lane = 0; lane < WIDTH; ++lane)",
                    f"    *panel_to++ = first + lane < {size} ? widen({element}) : zero;",
                ],
            ),
        ]
        count = math.prod(count for _, count in outer)
        panels, width = f"PANELS_{self._number}", f"WIDTH_{self._number}"
        return [
            f"constexpr int64_t {width} = LANES * {self._plan.lanes};",
            f"constexpr int64_t {panels} = ({size} + {width} - 1) / {width};",
            f"{'static ' if self._plan.reuse else ''}std::vector<real> "
            f"panels_{self._number}({count * depth} * {panels} * {width});",
            *(["#pragma omp parallel for schedule(static)"] if self._plan.threads else []),
            f"for (int64_t panel = 0; panel < {count} * {panels}; ++panel) {{",
            *indented(line.replace("PANELS", panels).replace("WIDTH", width) for line in body),
            "}",
        ]

    def _packed_outer(self) -> list[tuple[int, int]]:
        """Return the row axes that the packed operand depends on, and their sizes."""
        access = self._accesses[self._packed]
        return [(axis, size) for axis, size in enumerate(self._rows) if access.strides[axis]]

    def _heads(self, last: str = "") -> list[str]:
        """Return the heads of the loops of the sum. `last` is the end of the last loop, if not its size."""
        ends = [str(size) for size in self._summed]
        ends[-1:] = [last] if last and ends else ends[-1:]
        return [f"for (int64_t k{axis} = 0; k{axis} < {end}; ++k{axis})" for axis, end in enumerate(ends)]

    def kernel(self) -> str:
        """Return the definition of the kernel; empty for plain loops."""
        if self._kind == "plain":
            return ""
        kinds = {name: "real" if name == self._packed else place.kind for name, place in self._operands.items()}
        head = (
            f"static __attribute__((noinline)) void contraction_{self._number}("
            f"const {kinds['a']}* __restrict a, const {kinds['b']}* __restrict b, "
            f"{self._to.kind}* __restrict to, const int64_t depth, [[maybe_unused]] const int64_t valid) {{"
        )
        template = "template <int M, int V, int N>" if self._kind == "lanes" else "template <int M, int V>"
        body = self._lanes_body() if self._kind == "lanes" else self._dot_body()
        return "\n".join([template, head, *indented(body), "}"])

    def _lanes_body(self) -> list[str]:
        product = f"sum[m][v] += {self._lanes_operand('a')} * {self._lanes_operand('b')};"
        return [
            "lanes<N> sum[M][V] = {};",
            *_nested(self._heads("depth"), _tile(product)),
            *_tile(f"store<N>(to + m * {self._to.row} + v * N, sum[m][v], valid - v * N);"),
        ]

    def _lanes_operand(self, name: str) -> str:
        place = self._operands[name]
        if name == self._packed:
            strides = [math.prod(self._summed[axis + 1 :]) * self._plan.lanes for axis in range(len(self._summed))]
            return f"load<N>({name}{_index(strides, factor=' * LANES')} + v * N)"
        row = f" + m * {place.row}" if place.row else ""
        index = f"{row}{_index(self._sum_strides(place))}"
        return f"load<N>({name}{index} + v * N)" if self._lane(place) else f"widen({name}[0{index}])"

    def _dot_body(self) -> list[str]:
        vectors, singles = (
            " * ".join(self._dot_operand(name, single=single) for name in self._operands) for single in (False, True)
        )
        column, result = self._lane(self._to), "total<LANES>(sum[m][v]) + rest[m][v]"
        loops = [
            "const int64_t whole = depth - depth % LANES;",
            "for (int64_t k = 0; k < whole; k += LANES) {",
            *indented(_tile(f"sum[m][v] += {vectors};")),
            "}",
            "for (int64_t k = whole; k < depth; ++k) {",
            *indented(_tile(f"rest[m][v] += {singles};")),
            "}",
        ]
        return [
            "lanes<LANES> sum[M][V] = {};",
            "real rest[M][V] = {};",
            *_nested(self._heads()[:-1], loops),
            *_tile(f"to[m * {self._to.row} + v * {column}] = narrow<{self._to.kind}>({result});"),
        ]  # fmt: skip

    def _dot_operand(self, name: str, *, single: bool) -> str:
        place = self._operands[name]
        index = f" + m * {place.row}" if place.row else ""
        index += f" + v * {self._lane(place)}" if self._lane(place) else ""
        index += _index(self._sum_strides(place)[:-1])
        return f"widen({name}[k{index}])" if single else f"load<LANES>({name} + k{index})"

    def lines(self, *, columns: str = "", depth: str = "") -> list[str]:
        """Return the statements for the rows of a block.

        Args:
            columns: C++ expression of the number of columns to compute, if not all.
            depth: the end of the last loop of the sum, if not its size.
        """
        end = columns or str(self._columns[-1])
        deep = depth or str(self._summed[-1] if self._summed else 1)
        outer = self._columns[:-1]
        heads = [f"for (int64_t c{axis} = 0; c{axis} < {size}; ++c{axis})" for axis, size in enumerate(outer)]
        calls = {"plain": self._plain, "lanes": self._lanes_calls, "dot": self._dot_calls}[self._kind](end, deep)
        return [*map(self._declared, self._operands), self._to.declared("to"), *_nested(heads, calls)]

    def _declared(self, name: str) -> str:
        if name != self._packed:
            return self._operands[name].declared(name)
        terms, reach = [], 1
        for axis, size in reversed(self._packed_outer()):
            terms.append(times(f"o{axis}", reach))
            reach *= size
        block = f"PANELS_{self._number} * {math.prod(self._summed)} * WIDTH_{self._number}"
        start = f" + ({' + '.join(terms)}) * {block}" if terms else ""
        return f"const real* __restrict {name} = panels_{self._number}.data(){start};"

    def _outer_offset(self, place: Place) -> str:
        """Return the offset of a tensor in the loops over all axes of the columns but the last."""
        return _index(place.columns[: len(self._columns) - 1], "c")

    def _plain(self, end: str, depth: str) -> list[str]:
        def element(name: str, place: Place) -> str:
            lane = f" + c * {self._lane(place)}" if self._lane(place) else ""
            offset = f"{self._outer_offset(place)}{lane}{_index(self._sum_strides(place))}"
            return f"widen({name}[u * {place.row}{offset}])"

        kind, to = self._writer.accumulator, self._to
        left, right = (element(name, place) for name, place in self._operands.items())
        result = f"narrow<{to.kind}>(static_cast<real>(sum))"
        return [
            "for (int64_t u = 0; u < count; ++u)",
            f"for (int64_t c = 0; c < {end}; ++c) {{",
            f"    {kind} sum = 0;",
            *indented(_nested(self._heads(depth), [f"sum += static_cast<{kind}>({left}) * {right};"])),
            f"    to[u * {to.row}{self._outer_offset(to)} + c * {self._lane(to)}] = {result};",
            "}",
        ]

    def _lanes_calls(self, end: str, depth: str) -> list[str]:
        vectors = self._plan.lanes
        width = f"LANES * {vectors}"
        if self._packed:
            loop = self._rows_loop(f"{vectors}, LANES", f"{end} - n", depth)
            return [f"for (int64_t n = 0; n < {end}; n += {width}) {{", *indented(loop), "}"]
        steps = [(width, f"{vectors}, LANES"), *([("LANES", "1, LANES")] if vectors > 1 else [])]
        steps += [*((f"(LANES / {part})", f"1, LANES / {part}") for part in (2, 4)), ("1", "1, 1")]
        lines = ["int64_t n = 0;"]
        for step, template in steps:
            loop = self._rows_loop(template, step, depth)
            lines += [f"for (; n + {step} <= {end}; n += {step}) {{", *indented(loop), "}"]
        return lines

    def _dot_calls(self, end: str, depth: str) -> list[str]:
        lines = ["int64_t n = 0;"]
        for columns in dict.fromkeys((self._plan.lanes, 1)):
            loop = self._rows_loop(str(columns), "0", depth)
            lines += [f"for (; n + {columns} <= {end}; n += {columns}) {{", *indented(loop), "}"]
        return lines

    def _rows_loop(self, template: str, valid: str, depth: str) -> list[str]:
        """Return the loops over the rows of the block, tile by tile, then the rest."""
        arguments = []
        for name, place in (*self._operands.items(), ("to", self._to)):
            is_packed = name == self._packed
            lane = math.prod(self._summed) if is_packed else self._lane(place)
            row = f" + u * {place.row}" if place.row else ""
            column = f" + n * {lane}" if lane else ""
            arguments.append(f"{name}{'' if is_packed else self._outer_offset(place)}{row}{column}")
        lines = ["int64_t u = 0;"]
        for tile in sorted({self._plan.tile, max(1, self._plan.tile // 2), 1}, reverse=True):
            call = f"contraction_{self._number}<{tile}, {template}>({', '.join(arguments)}, {depth}, {valid});"
            lines += [f"for (; u + {tile} <= count; u += {tile})", f"    {call}"]
        return lines


def _index(strides: tuple[int, ...] | list[int], name: str = "k", factor: str = "") -> str:
    """Return the offset of an element along numbered variables, with a plus sign before each term."""
    return "".join(f" + {name}{axis} * {stride}{factor}" for axis, stride in enumerate(strides) if stride)


def _tile(statement: str) -> list[str]:
    return ["UNROLLED for (int m = 0; m < M; ++m)", f"    UNROLLED for (int v = 0; v < V; ++v) {statement}"]


def _nested(heads: list[str], body: list[str]) -> list[str]:
    """Return loops around statements."""
    if not heads:
        return ["{", *indented(body), "}"] if len(body) > 1 else body
    return [*heads[:-1], f"{heads[-1]} {{", *indented(body), "}"]
