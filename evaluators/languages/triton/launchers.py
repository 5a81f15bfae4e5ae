"""Compiles what launches a kernel, for versions of Triton that have a C module for that per signature: up to 3.6.

Each takes the host's C compiler 0.7 s, which would otherwise be spent in the candidate's first call, on the GPU. It is
linked against a library that stands for the driver's, which need not be here: the real one is found where the module
is loaded. It lies in Triton's cache. Where there is no C compiler, nothing is left, and the first call tries again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

from triton.backends.nvidia import driver
from triton.compiler.compiler import ASTSource
from triton.runtime import build

from evaluators.languages.triton.apart import Apart, cores

_MOST = 64
_LIMIT_S = 60.0
_DRIVER = "libcuda.so.1"
_OF_DRIVER = re.compile(r"\bcu[A-Z]\w+(?=\()")


class Launchers:
    """One process for each, several at once."""

    def __init__(self) -> None:
        """Begin to count the time that there is for all."""
        self._apart = Apart(at_once=cores(), most=_MOST, limit_s=_LIMIT_S)
        self._begun: set[str] = set()

    def begin(self, source: ASTSource) -> None:
        """Have the module for a kernel's signature compiled, once for all kernels that have it.

        Not of one that takes tensor descriptors: how they are handed over, compiling the kernel says.
        """
        identity = str([*source.signature.values()])
        is_known = identity in self._begun or "tensordesc" in identity
        if hasattr(driver, "make_launcher") and not is_known:
            self._begun.add(identity)
            self._apart.run(lambda: _compile(source))

    def wait(self) -> None:
        """Wait until all are compiled, or the time is over."""
        self._apart.wait()


def _compile(source: ASTSource) -> None:
    compile_and_link = build._build  # noqa: SLF001 - the place where Triton has its own build systems step in

    def link_against_absent(name: str, path: str, folder: str, _library_dirs: object, *others: object) -> object:
        _make_driver(Path(folder), Path(path).read_text(encoding="utf-8"))
        return compile_and_link(name, path, folder, [folder], *others)

    vars(build).update(_build=link_against_absent, _load_module_from_path=_end)
    vars(driver)["library_dirs"] = list
    driver.CudaLauncher(source, SimpleNamespace())


def _make_driver(folder: Path, text: str) -> None:
    """Make a library with the functions of the driver that a text names: linkers may drop one that has none of them."""
    functions = "".join(f"void {name}(void) {{}}\n" for name in sorted(set(_OF_DRIVER.findall(text))))
    library = folder / _DRIVER
    compiler = shutil.which("gcc") or "clang"  # as Triton chooses
    command = [compiler, "-x", "c", "-", "-shared", "-fPIC", f"-Wl,-soname,{_DRIVER}", "-o", str(library)]
    subprocess.run(command, input=functions.encode(), check=True)  # noqa: S603 - the names are those of functions
    shutil.copyfile(library, folder / "libcuda.so")


def _end(_name: str, _path: str) -> NoReturn:
    raise SystemExit
