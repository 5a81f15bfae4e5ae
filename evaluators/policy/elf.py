"""What a shared library (ELF, 64 bits, little endian) takes from others. The format is the System V ABI's.

Read as the dynamic linker reads it: from the program headers and the dynamic section in memory. The section headers,
which linkers and debuggers use, may be missing or say something else, where a candidate could write to the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_DYNAMIC = struct.Struct("<qQ")
_MAGIC = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB = 0, 1, 5, 6
_DT_AUXILIARY, _DT_FILTER = 0x7FFFFFFD, 0x7FFFFFFF
_LOADED = frozenset((_DT_NEEDED, _DT_AUXILIARY, _DT_FILTER))
"""By which a library names others that are loaded with it."""
_RELOCATIONS = ((7, 8), (23, 2))
"""Where the tables of relocations lie, and how large they are: `DT_RELA`, `DT_RELASZ`; `DT_JMPREL`, `DT_PLTRELSZ`."""
_WEAK = 2
_PAGE = 4096


class BadLibraryError(Exception):
    """The bytes are no such library."""


class Undefined(msgspec.Struct, frozen=True):
    """A symbol that another library must have."""

    name: str
    is_weak: bool
    """Whether it may be missing: then the linker did not insist on it."""


class Imports(msgspec.Struct, frozen=True, kw_only=True):
    """What a library takes from others."""

    needed: tuple[str, ...]
    """File names of libraries that are loaded with it."""
    undefined: tuple[Undefined, ...]
    """What it refers to and has not itself."""


class _Segment(msgspec.Struct, frozen=True):
    offset: int
    address: int
    size: int
    """In the file."""


def read_imports(library: bytes) -> Imports:
    """Return what a library takes from others.

    Raises:
        BadLibraryError: it is none, or broken.
    """
    if not library.startswith(_MAGIC):
        raise BadLibraryError("no 64-bit little-endian ELF file")
    try:
        image = _Image(library)
        return Imports(needed=tuple(image.needed()), undefined=tuple(image.undefined()))
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise BadLibraryError(f"broken ELF file: {error}") from error


class _Image:
    """A library as it lies in memory."""

    def __init__(self, library: bytes) -> None:
        """Read where it lies.

        Raises:
            BadLibraryError: no linker makes such a one.
            struct.error: it is cut short.
        """
        self._library = library
        self._loaded: list[_Segment] = []
        dynamic: list[_Segment] = []
        header = _HEADER.unpack_from(library)
        start, size, count = header[5], header[9], header[10]
        if size != _SEGMENT.size:
            raise BadLibraryError("its program headers have another size than the format's")
        for index in range(count):
            kind, _, offset, address, _, in_file, _, _ = _SEGMENT.unpack_from(library, start + index * size)
            if kind == _PT_LOAD:
                self._load(_Segment(offset, address, in_file))
            elif kind == _PT_DYNAMIC:
                dynamic.append(_Segment(offset, address, in_file))
        if len(dynamic) != 1:
            raise BadLibraryError("it has no dynamic section, or several")
        self._tags = list(self._dynamic(self._at(dynamic[0].address)))
        self._names = self._only(_DT_STRTAB)

    def _load(self, segment: _Segment) -> None:
        last = self._loaded[-1] if self._loaded else None
        # What is mapped later covers what was there.
        if last is not None and segment.address // _PAGE * _PAGE < last.address + last.size:
            raise BadLibraryError("its segments overlap")
        self._loaded.append(segment)

    def _at(self, address: int) -> int:
        """Return where in the file something lies that the dynamic linker looks for at an address."""
        for segment in self._loaded:
            if segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        raise BadLibraryError(f"nothing lies at its address {address:#x}")

    def _dynamic(self, position: int) -> Iterator[tuple[int, int]]:
        while True:
            tag, value = _DYNAMIC.unpack_from(self._library, position)
            if tag == _DT_NULL:
                return
            yield tag, value
            position += _DYNAMIC.size

    def _only(self, wanted: int) -> int:
        """Return the value of a tag that must be there; where there are several, the last one counts."""
        found = [value for tag, value in self._tags if tag == wanted]
        if not found:
            raise BadLibraryError(f"its dynamic section has no tag {wanted}")
        return found[-1]

    def needed(self) -> Iterator[str]:
        """Yield the file names of libraries that are loaded with it."""
        return (self._text(value) for tag, value in self._tags if tag in _LOADED)

    def undefined(self) -> Iterator[Undefined]:
        """Yield the symbols that it refers to and has not itself, each once."""
        symbols = self._only(_DT_SYMTAB)
        for number in sorted(set(self._referred())):
            name, info, _, where, _, _ = _SYMBOL.unpack_from(self._library, self._at(symbols + number * _SYMBOL.size))
            if name and where == 0:
                yield Undefined(self._text(name), info >> 4 == _WEAK)

    def _referred(self) -> Iterator[int]:
        """Yield the numbers of the symbols that relocations refer to."""
        tags = dict(self._tags)
        for table, size in _RELOCATIONS:
            if table not in tags:
                continue
            begin = self._at(tags[table])
            for position in range(begin, begin + tags.get(size, 0), _RELOCATION.size):
                yield _RELOCATION.unpack_from(self._library, position)[1] >> 32

    def _text(self, offset: int) -> str:
        """Return a name of the table of strings, each of which ends with a zero byte."""
        start = self._at(self._names + offset)
        return self._library[start : self._library.index(b"\0", start)].decode("ascii", "replace")
