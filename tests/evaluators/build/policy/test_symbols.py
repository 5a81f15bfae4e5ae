"""What real shared libraries take from others."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

from evaluators.build.policy.gate import examine
from evaluators.build.policy.symbols import (
    BadLibraryError,
    Imports,
    Undefined,
    finder_in,
    foreign_call,
    foreign_call_inside,
    read_imports,
)
from evaluators.languages.cpp.contract import COMPILER_FLAGS
from evaluators.languages.cpp.toolchain import find_compiler
from messages.base import EvaluatorError
from messages.tasks import Candidate, SourceFile, TaskRules
from messages.verdicts import Rejected
from tests.evaluators.words import RIGHT, cpp

DENY = TaskRules()

HONEST = RIGHT.replace(
    "// before",
    'if (rows < 0) throw std::runtime_error("no"); std::thread([] {}).join(); std::vector<float> more(rows);\n'
    "#pragma omp parallel for\n    for (int64_t r = 0; r < rows; ++r) more[r] = std::exp(x[r]);",
)
OPENING = RIGHT.replace("#include <cmath>", "#include <dlfcn.h>\n#include <cmath>").replace(
    "// before", 'void* library = dlopen("libcblas.so", RTLD_NOW); if (!library) return 1;'
)
WEAK = RIGHT.replace(
    'extern "C" int ksearch_run', 'extern "C" void cblas_sgemm() __attribute__((weak));\nextern "C" int ksearch_run'
).replace("// before", "if (cblas_sgemm) cblas_sgemm();")


def build(folder: Path, text: str, *more: str) -> Path:
    (folder / "main.cpp").write_text(text)
    command = [find_compiler(), *COMPILER_FLAGS, "-o", "kernel.so", "main.cpp", *more]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "kernel.so"


def test_an_honest_library_calls_nothing_foreign(tmp_path: Path) -> None:
    imports = read_imports(build(tmp_path, HONEST).read_bytes())
    assert "libstdc++.so.6" in imports.needed
    assert {"expf", "GOMP_parallel"} <= {symbol.name for symbol in imports.undefined}
    assert foreign_call(imports, DENY, "cpp") == ""


@pytest.mark.parametrize(("text", "named"), [(OPENING, "dlopen"), (WEAK, "cblas_sgemm")])
def test_a_library_that_reaches_for_others_is_rejected_and_the_symbol_named(
    tmp_path: Path, text: str, named: str
) -> None:
    product = build(tmp_path, text)
    rejected = examine(cpp(text), product, DENY).rejected
    assert isinstance(rejected, Rejected)
    assert rejected.rule == "library call"
    assert named in rejected.reason
    assert examine(cpp(text), product, TaskRules(library_calls="allow")).rejected is None


def test_a_library_of_torch_is_named(tmp_path: Path) -> None:
    imports = Imports(needed=("libc.so.6", "libtorch_cpu.so"), undefined=())
    assert "libtorch_cpu.so" in foreign_call(imports, DENY, "cpp")
    mangled = Imports(needed=("libc.so.6",), undefined=(Undefined("_ZN2at4_ops6matmul4callERKNS_6TensorES4_", False),))
    assert "_ZN2at" in foreign_call(mangled, DENY, "cpp")


def test_a_vendors_library_may_be_allowed_by_name() -> None:
    imports = Imports(needed=("libcublas.so.12", "libcudart.so.12"), undefined=(Undefined("cublasSgemm_v2", False),))
    assert foreign_call(imports, DENY, "cuda") == "it is linked with libcublas.so.12"
    assert foreign_call(imports, TaskRules(allowed=("cublas",)), "cuda") == ""


def test_cudas_runtime_looks_for_the_driver_and_a_text_that_looks_for_more_is_named() -> None:
    imports = Imports(needed=("libc.so.6",), undefined=(Undefined("dlopen", False), Undefined("dlsym", False)))
    assert foreign_call(imports, DENY, "cuda") == ""

    def cuda(text: str) -> Candidate:
        return Candidate(language="cuda", entry_point="ksearch_run", files=(SourceFile(path="k.cu", text=text),))

    assert "dlsym" in finder_in(cuda('void f() { dlsym(nullptr, "cublasSgemm_v2"); }'))
    assert finder_in(cuda("// dlsym would be needed\nint f();")) == ""


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_what_is_no_library_is_an_error_of_the_evaluator(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadLibraryError):
        read_imports(data)
    product = tmp_path / "kernel.so"
    product.write_bytes(data)
    with pytest.raises(EvaluatorError):
        examine(cpp(RIGHT), product, DENY)


def test_no_broken_library_brings_the_reader_down(tmp_path: Path) -> None:
    library = build(tmp_path, RIGHT).read_bytes()
    for position in range(0, min(len(library), 4000), 7):
        broken = library[:position] + b"\xfe" + library[position + 1 :]
        try:
            read_imports(broken)
        except BadLibraryError:
            continue


@pytest.mark.parametrize("name", ["sgemm", "SGEMM", "sgemm_", "vsExp", "vmdtanh_", "spotrf", "uv_dlsym"])
def test_what_an_extension_calls_of_torchs_libraries_is_named_however_it_is_spelt(tmp_path: Path, name: str) -> None:
    library = extension(tmp_path, f'extern "C" void {name}(); extern "C" void f() {{ {name}(); }}')
    assert f"it calls {name}, a function of a library" in foreign_call_inside(tmp_path, DENY)
    # As a candidate can write it anew while it is built: what only linkers read says nothing then.
    data = bytearray(library.read_bytes())
    data[40:48], data[60:64] = bytes(8), bytes(4)
    library.write_bytes(data)
    ctypes.CDLL(str(library), mode=os.RTLD_LAZY)
    assert f"it calls {name}, a function of a library" in foreign_call_inside(tmp_path, DENY)


def test_an_extension_may_call_what_every_program_does(tmp_path: Path) -> None:
    text = "#include <cstdio>\n#include <cstring>\n#include <cmath>\n#include <cstdarg>\n" + (
        'extern "C" int f(char* a, const char* b, va_list c) { strtok(a, b); return vsnprintf(a, 9, b, c) + sinh(*a); }'
    )
    extension(tmp_path, text)
    assert foreign_call_inside(tmp_path, DENY) == ""


def test_an_extension_without_a_dynamic_section_cannot_be_looked_into(tmp_path: Path) -> None:
    library = extension(tmp_path, "int x;")
    library.write_bytes(library.read_bytes()[:64])
    assert "cannot be looked into" in foreign_call_inside(tmp_path, DENY)


def extension(folder: Path, text: str) -> Path:
    place = folder / "inline" / "0a"
    place.mkdir(parents=True)
    (folder / "main.cpp").write_text(text)
    library = place / "built.so"
    subprocess.run([find_compiler(), "-shared", "-fPIC", "-o", str(library), str(folder / "main.cpp")], check=True)
    return library
