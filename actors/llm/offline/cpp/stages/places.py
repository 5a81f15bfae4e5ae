"""Where elements of tensors lie while a program works on a block of rows, as C++.

Variables of a block: `o0`, `o1`, ... number the outer row axes, `start` is the block's first row along the last one and
`count` how many rows it has; `u` is a row of the block.
"""

from __future__ import annotations

import msgspec

from actors.llm.offline.cpp.expressions import C_TYPES
from actors.llm.offline.graph import Access, TensorInfo
from actors.llm.offline.stages.ir import Staged


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Elements of a tensor in a block."""

    tensor: TensorInfo
    pointer: str
    """C++ expression: the tensor's data, or the buffer of the block."""
    start: str
    """C++ expression: offset of the block's first row."""
    row: int
    """Stride from row to row of the block."""
    columns: tuple[int, ...]
    """Strides along what comes after the rows."""
    written: bool

    @property
    def kind(self) -> str:
        """The C++ type of an element."""
        return C_TYPES[self.tensor.dtype]

    def declared(self, name: str) -> str:
        """Return the statement that gives the block's first element a name."""
        const = "" if self.written else "const "
        start = f" + {self.start}" if self.start else ""
        return f"{const}{self.kind}* __restrict {name} = {self.pointer}{start};"

    def element(self, column: str) -> str:
        """Return the offset of an element of row `u`; `column` is its offset in the row, empty for none."""
        row = "" if not self.row else "u" if self.row == 1 else f"u * {self.row}"
        return " + ".join(filter(None, (row, column))) or "0"


class Places:
    """Where all tensors lie for the groups of a program."""

    def __init__(self, program: Staged, names: dict[tuple[bool, str], str]) -> None:
        """Set it up.

        Args:
            program: whose tensors they are.
            names: C++ names of the tensors' data; the first part of a key is true for outputs.
        """
        self._sources, self._targets = program.sources, program.targets
        self._names = names
        self.rows: tuple[int, ...] = ()
        self._local: dict[str, int] = {}

    def enter(self, rows: tuple[int, ...], local: dict[str, int]) -> None:
        """Go on to another group: its row axes, and the elements per row of the values that it keeps in buffers."""
        self.rows = rows
        self._local = local

    def place(self, access: Access, row_axes: int, *, written: bool = False) -> Place:
        """Return where a stage's access lies; `row_axes` of the stage number its rows."""
        tensors = self._targets if written else self._sources
        tensor = tensors[access.name]
        if access.name in self._local:
            return Place(tensor=tensor, pointer=local_name(access.name), start="", row=self._local[access.name],
                         columns=access.strides[row_axes:], written=written)  # fmt: skip
        number = self.number(access, row_axes)
        name = self._names[tensor.role == "output", access.name]
        return msgspec.structs.replace(number, tensor=tensor, pointer=name, written=written)

    def number(self, access: Access, row_axes: int) -> Place:
        """Return the offset itself."""
        strides = access.strides[:row_axes]
        terms = [str(access.offset)] if access.offset else []
        terms += [_times(f"o{axis}", stride) for axis, stride in enumerate(strides[:-1]) if stride]
        terms += [_times("start", strides[-1])] if strides[-1:] != (0,) and strides else []
        return Place(
            tensor=TensorInfo(name="", role="value", shape=(), dtype="float32"),
            pointer="",
            start=" + ".join(terms),
            row=strides[-1] if strides else 0,
            columns=access.strides[row_axes:],
            written=False,
        )


def local_name(name: str) -> str:
    """Return the C++ name of the buffer for a value."""
    return f"block_of_{name.lstrip('%')}"


def _times(name: str, stride: int) -> str:
    return name if stride == 1 else f"{name} * {stride}"
