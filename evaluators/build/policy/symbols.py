"""Libraries that do a candidate's work: read from the shared library that was built.

Read as the dynamic linker does: from the program headers and the dynamic section in memory. The section headers, which
linkers and debuggers use, may be missing or wrong if a candidate could write to the file.

Extensions are linked with torch, and calls through its dispatcher are denied in the runner like any other. Not seen
there are the kernels behind the operators, which torch's libraries export, and the vendors' libraries.

The linker insists that every symbol is found (`-z defs`), so the names of the libraries tell nearly everything. The
rest are symbols that may be missing, and functions that find others at run time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evaluators.build.policy.native_text import names_in
from evaluators.runners.inline import INLINE
from evaluators.runners.kernels import KERNELS, LAUNCHER
from messages.base import EvaluatorError, Language
from messages.tasks import Candidate, TaskRules

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
"""Tags by which a library names others that are loaded with it."""
_RELOCATIONS = ((7, 8), (23, 2))
"""Addresses and sizes of the tables of relocations: `DT_RELA`, `DT_RELASZ`; `DT_JMPREL`, `DT_PLTRELSZ`."""
_WEAK = 2
_PAGE = 4096


class BadLibraryError(Exception):
    """The bytes are not a shared library."""


class Undefined(msgspec.Struct, frozen=True):
    """A symbol that another library must provide."""

    name: str
    is_weak: bool
    """True if it may be missing, so that the linker did not insist on it."""


class Imports(msgspec.Struct, frozen=True, kw_only=True):
    """Imports of a shared library."""

    needed: tuple[str, ...]
    """File names of libraries that are loaded with it."""
    undefined: tuple[Undefined, ...]
    """Symbols that it uses and does not define."""


class _Segment(msgspec.Struct, frozen=True):
    offset: int
    address: int
    size: int
    """Its size in the file."""


def read_imports(library: bytes) -> Imports:
    """Return the imports of a library.

    Raises:
        BadLibraryError: it is not a shared library, or broken.
    """
    if not library.startswith(_MAGIC):
        raise BadLibraryError("no 64-bit little-endian ELF file")
    try:
        image = _Image(library)
        return Imports(needed=tuple(image.needed()), undefined=tuple(image.undefined()))
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise BadLibraryError(f"broken ELF file: {error}") from error


class _Image:
    def __init__(self, library: bytes) -> None:
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
        # Later mappings cover earlier ones.
        if last is not None and segment.address // _PAGE * _PAGE < last.address + last.size:
            raise BadLibraryError("its segments overlap")
        self._loaded.append(segment)

    def _at(self, address: int) -> int:
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
        """Return the value of a required tag; of several the last one counts."""
        found = [value for tag, value in self._tags if tag == wanted]
        if not found:
            raise BadLibraryError(f"its dynamic section has no tag {wanted}")
        return found[-1]

    def needed(self) -> Iterator[str]:
        return (self._text(value) for tag, value in self._tags if tag in _LOADED)

    def undefined(self) -> Iterator[Undefined]:
        """Yield the symbols that it uses and does not define, each once."""
        symbols = self._only(_DT_SYMTAB)
        for number in sorted(set(self._referred())):
            name, info, _, where, _, _ = _SYMBOL.unpack_from(self._library, self._at(symbols + number * _SYMBOL.size))
            if name and where == 0:
                yield Undefined(self._text(name), info >> 4 == _WEAK)

    def _referred(self) -> Iterator[int]:
        tags = dict(self._tags)
        for table, size in _RELOCATIONS:
            if table not in tags:
                continue
            begin = self._at(tags[table])
            for position in range(begin, begin + tags.get(size, 0), _RELOCATION.size):
                yield _RELOCATION.unpack_from(self._library, position)[1] >> 32

    def _text(self, offset: int) -> str:
        start = self._at(self._names + offset)
        return self._library[start : self._library.index(b"\0", start)].decode("ascii", "replace")


_TORCH = re.compile(r"(libtorch\w*|libc10\w*|libpython[0-9.]*)\.so[.0-9]*")
_VENDORS = re.compile(
    r"(cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|nvjpeg|npp[a-z]|mkl|vml|dnnl|onednn|openblas|cblas|"
    r"lapack|aoti_torch|dfti|nnp_|xnn_|qnnp|pytorch_q|fbgemm|_ZNK?(6fbgemm|7qnnpack|4dnnl|5ideep)|gemm_|uv_dl|"
    r"[sdcz](gemm|gemv|symm|hemm|syrk|herk|trmm|trsm|ge(qrf|trf|trs|sv|sdd|ev|ls)|po(trf|tri|trs)|(sy|he)(ev|trf|trs)|"
    r"(or|un)(gqr|mqr))|i?[sdcz](dot[cu]?|axpy|scal|nrm2|asum|copy|amax)_?$|"
    r"vm?[sdcz](exp|ln|log|sqrt|pow|a?(sin|cos|tan)|tanh|erf|mul|add|sub|div|inv|trunc))",
    re.IGNORECASE,
)
"""Functions of a BLAS and of LAPACK, with or without an underscore at the end. Functions that find others by name
count as well."""
_BEHIND_OPERATORS = re.compile(
    r"_ZNK?2at(3cpu|6native|8cpublas|4meta|14DynamicLibrary|4cuda(?!\d+(getCurrentDeviceProperties|getDeviceProperties|warp_size|"
    r"getCurrentCUDAStream|getDefaultCUDAStream|getStreamFromPool|setCurrentCUDAStream)))"
)
"""Mangled names in the namespaces of torch's kernels, and its `dlopen`. Queries of the device in `at::cuda` are
permitted."""


def foreign_call_inside(folder: Path, rules: TaskRules) -> str:
    """Return a foreign call of an artifact's extensions; empty if there is none.

    Raises:
        EvaluatorError: one cannot be read.
    """
    for library in sorted((folder / INLINE).glob("*/*.so")):
        try:
            found = _foreign_call(read_imports(library.read_bytes()), rules)
        except BadLibraryError as error:  # code that the candidate executes while it is built can have made it so
            return f"extension {library.stem} cannot be looked into ({error})"
        except OSError as error:
            raise EvaluatorError(f"the build product cannot be read: {error}") from error
        if found:
            return f"extension {library.stem}: {found}"
    return ""


def _foreign_call(imports: Imports, rules: TaskRules) -> str:
    for file in imports.needed:
        if not (is_runtime(file) or _TORCH.fullmatch(file) or is_allowed(file, rules)):
            return f"it is linked with {file}"
    for symbol in imports.undefined:
        if symbol.name in FINDERS:
            return f"it calls {symbol.name}, which finds functions of other libraries while the program runs"
        known = any(names.match(symbol.name) for names in (_VENDORS, _BEHIND_OPERATORS))
        if known and not is_allowed(symbol.name, rules):
            return f"it calls {symbol.name[:120]}, a function of a library"
    return ""


def foreign_launcher(folder: Path) -> str:
    """Return a library that a launcher of an artifact is linked with and does not need; empty if there is none.

    Candidate code that ran during the build can have added it.

    Raises:
        EvaluatorError: one cannot be read.
    """
    for library in sorted((folder / KERNELS).glob("*/*.so")):
        try:
            needed = read_imports(library.read_bytes()).needed
        except BadLibraryError as error:
            return f"{library.name} cannot be looked into ({error})"
        except OSError as error:
            raise EvaluatorError(f"the build product cannot be read: {error}") from error
        if not re.fullmatch(LAUNCHER, library.name):
            return f"{library.name} is no launcher of Triton's"
        foreign = [file for file in needed if not is_runtime(file)]
        if foreign:
            return f"the launcher of its kernels is linked with {foreign[0]}"
    return ""


_ALLOWED = re.compile(
    r"(libc|libm|libstdc\+\+|libc\+\+|libc\+\+abi|libgcc_s|libgomp|libomp|libiomp5|libpthread|librt|libdl|ld-linux.*|"
    r"libtvm_ffi|libcudart|libcuda)\.so[.0-9]*"
)
"""Libraries that any kernel may be linked with: the languages' runtimes, and CUDA's."""

_LIBRARIES = re.compile(
    r"(cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|nvjpeg|npp[a-z]|mkl|vml|dnnl|onednn|openblas|cblas|lapack|"
    r"aoti_torch|torch|at::|Py[A-Z_])",
    re.IGNORECASE,
)
_NAMESPACES = re.compile(r"_ZNK?S?t?(2at|3c10|5torch|7cutlass)")
"""Mangled names in the namespaces of torch."""

FINDERS = frozenset(("dlopen", "dlmopen", "dlsym", "dlvsym", "__libc_dlopen_mode", "__libc_dlsym"))
"""Functions by which a program can call a library that it was not linked with."""

LIBRARIES = (
    "cublas",
    "cublasLt",
    "cudnn",
    "cusparse",
    "cusolver",
    "cufft",
    "curand",
    "cutensor",
    "nccl",
    "mkl",
    "dnnl",
    "openblas",
)
"""Libraries that a task may allow by name."""


def foreign_call(imports: Imports, rules: TaskRules, language: Language) -> str:
    """Return a foreign call of a built library; empty if there is none.

    Args:
        imports: imports of the library.
        rules: the task's rules.
        language: its language: CUDA's runtime, which is linked in, finds the driver by itself.
    """
    if rules.library_calls == "allow":
        return ""
    for file in imports.needed:
        if not is_runtime(file) and not is_allowed(file, rules):
            return f"it is linked with {file}"
    for symbol in imports.undefined:
        if symbol.name in FINDERS and language != "cuda":
            return f"it calls {symbol.name}, which finds functions of other libraries while the program runs"
        known = _LIBRARIES.match(symbol.name) or _NAMESPACES.match(symbol.name)
        if known is not None and not is_allowed(symbol.name, rules):
            return f"it calls {symbol.name[:120]}, a function of a library"
    return ""


def finder_in(candidate: Candidate) -> str:
    """Return a function that finds others by name in a CUDA text; empty if there is none. Its library cannot tell."""
    if candidate.language != "cuda":
        return ""
    found = sorted({name for file in candidate.files for name in FINDERS & names_in(file.text)})
    return f"it names {found[0]}, which finds functions of other libraries while the program runs" if found else ""


def is_runtime(file: str) -> bool:
    """Return True if a library's file name is that of a language's runtime, or of CUDA's."""
    return _ALLOWED.fullmatch(file) is not None


def is_allowed(name: str, rules: TaskRules) -> bool:
    """Return True if a task allows a library, or a function of one, by name."""
    bare = name.removeprefix("lib").lower()
    return any(bare.startswith(allowed.lower()) for allowed in rules.allowed if "::" not in allowed)
