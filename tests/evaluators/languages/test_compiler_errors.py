"""What is left of a real compiler's output: the error and its place, and never the library's templates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evaluators.languages.base import LanguageSupport
from evaluators.languages.compiled import CompilerError, first_errors, shortened
from evaluators.languages.cpp.diagnostics import explain
from evaluators.languages.cpp.support import CPP
from evaluators.languages.cuda.support import CUDA
from evaluators.languages.cuda.toolchain import find_nvcc
from messages.base import EvaluatorError
from messages.tasks import Candidate, SourceFile, Target
from messages.verdicts import DidNotBuild

TEMPLATES = """\
#include <algorithm>
#include <map>
#include <string>
#include <vector>
struct Pair { int left; };
extern "C" int ksearch_run() {
    std::vector<Pair> pairs(4);
    std::sort(pairs.begin(), pairs.end());
    std::map<Pair, std::vector<std::string>> names;
    names[Pair{1}].push_back("a");
    return 0;
}
"""
H200 = Target(arch="sm_90", march="", toolchain="nvcc", device="NVIDIA H200")


def failed(folder: Path, support: LanguageSupport, path: str, text: str, target: Target) -> tuple[DidNotBuild, str]:
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path=path, text=text),))
    (folder / path).write_text(text, encoding="utf-8")
    command = support.plan_build(candidate, target).command
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=None)
    assert ran.returncode != 0
    return support.explain_failure(ran.stdout + ran.stderr, candidate), ran.stdout + ran.stderr


def _nvcc() -> bool:
    try:
        find_nvcc()
    except EvaluatorError:
        return False
    return True


needs_nvcc = pytest.mark.skipif(not _nvcc(), reason="no nvcc here")


def test_an_error_in_a_librarys_header_is_told_by_the_line_of_the_candidate_that_led_there(tmp_path: Path) -> None:
    outcome, printed = failed(tmp_path, CPP, "kernel.cpp", TEMPLATES, CPP.probe_target("cpu"))
    assert len(printed) > 8_000
    assert len(outcome.log) < 1_500
    assert "kernel.cpp:8" in outcome.log
    assert "kernel.cpp:10" in outcome.log
    assert "no match for" in outcome.reason
    assert outcome.reason.startswith("kernel.cpp:")
    assert "candidate:" not in outcome.log
    assert "_RandomAccessIterator" not in outcome.log


def test_an_error_of_its_own_comes_before_what_it_led_to_in_headers(tmp_path: Path) -> None:
    text = TEMPLATES.replace("return 0;", "return undeclared;")
    outcome, _ = failed(tmp_path, CPP, "kernel.cpp", text, CPP.probe_target("cpu"))
    assert outcome.reason.startswith("kernel.cpp:11:")
    assert "undeclared" in outcome.reason
    assert "return undeclared;" in outcome.log


@needs_nvcc
def test_nvccs_instantiations_come_to_the_line_of_the_candidate(tmp_path: Path) -> None:
    outcome, printed = failed(tmp_path, CUDA, "kernel.cu", TEMPLATES, H200)
    assert len(printed) > 4_000
    assert len(outcome.log) < 1_200
    assert outcome.reason == 'kernel.cu:8: error: no operator "<" matches these operands'
    assert "your code leads there at kernel.cu:8" in outcome.log
    assert "detected during" not in outcome.log


@needs_nvcc
def test_what_a_block_cannot_have_is_told_in_a_line(tmp_path: Path) -> None:
    text = (
        "#include <cuda_runtime.h>\n__global__ void big(float* x) {\n    __shared__ float s[100000];\n"
        '    s[threadIdx.x] = x[0];\n    x[1] = s[3];\n}\nextern "C" int ksearch_run(float* x) {\n'
        "    big<<<1, 1>>>(x);\n    return 0;\n}\n"
    )
    outcome, _ = failed(tmp_path, CUDA, "kernel.cu", text, H200)
    assert "'big' uses too much shared data" in outcome.reason


CLANG = """\
In file included from kernel.cpp:1:
/usr/include/c++/12/bits/predefined_ops.h:45:23: error: invalid operands to binary expression ('S' and 'S')
   45 |       { return *__it1 < *__it2; }
/usr/include/c++/12/bits/stl_algo.h:1809:14: note: in instantiation of function template 'x' requested here
 1809 |           __comp(__i, __first)
kernel.cpp:8:10: note: in instantiation of function template specialization 'std::sort<S>' requested here
    8 |     std::sort(v.begin(), v.end());
"""


def test_clangs_notes_lead_to_the_candidate_too() -> None:
    outcome = explain(CLANG, ("kernel.cpp",))
    assert outcome.reason == "kernel.cpp:8: error: invalid operands to binary expression ('S' and 'S')"
    assert "std::sort(v.begin(), v.end());" in outcome.log
    assert "stl_algo" not in outcome.log


def test_the_same_error_of_the_same_place_is_told_once_and_many_are_counted() -> None:
    def error(place: str, message: str = "no match") -> CompilerError:
        return CompilerError(file="/usr/x.h", headline=f"/usr/x.h: error: {message}", message=message, came_from=place)

    _, log = first_errors([error("k.cpp:8"), error("k.cpp:8"), error("k.cpp:9")], ("k.cpp",))
    assert log.count("no match") == 2
    _, log = first_errors([error(f"k.cpp:{n}") for n in range(9)], ("k.cpp",))
    assert log.endswith("(5 more errors)")


def test_what_templates_were_filled_in_with_is_left_out() -> None:
    line = "error: no match in \u2018void f(T) [with T = std::vector<int, std::allocator<int> >]\u2019"
    assert shortened(line) == "error: no match in \u2018void f(T)\u2019"
