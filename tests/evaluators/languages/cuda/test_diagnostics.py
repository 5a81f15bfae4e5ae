"""What is made of the output of nvcc and the tools behind it."""

from __future__ import annotations

import pytest

from evaluators.languages.cuda.diagnostics import KernelFacts, explain, read_kernels, summarize
from evaluators.languages.cuda.mangling import readable

FACTS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4softILi256EEvPKfPfi' for 'sm_90a'
ptxas info    : Function properties for _Z4softILi256EEvPKfPfi
    40 bytes stack frame, 36 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 2.506 ms
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_each_kernel_has_its_own_facts() -> None:
    assert read_kernels(FACTS) == (
        KernelFacts(name="soft<256>", registers=255, spilled_bytes=36, stack_bytes=40, shared_bytes=1024),
        KernelFacts(name="plain", registers=8, spilled_bytes=0, stack_bytes=0, shared_bytes=0),
    )


def test_nothing_but_the_facts_is_left_of_a_build_without_warnings() -> None:
    assert len(summarize(FACTS).splitlines()) == 2


def test_many_kernels_are_counted_instead_of_shown() -> None:
    assert summarize(FACTS * 20).endswith("(16 more kernels)")


def test_an_error_in_the_candidates_file_comes_before_one_in_a_header() -> None:
    log = (
        "/usr/local/cuda/include/cub/cub.cuh(10): error: static assertion failed\n"
        '  static_assert(x);\n  ^\n\nmain.cu(7): error: identifier "zz" is undefined\n    zz();\n    ^\n\n'
        '2 errors detected in the compilation of "main.cu".\n'
    )
    outcome = explain(log, ("main.cu",))
    assert outcome.reason == 'main.cu(7): error: identifier "zz" is undefined'
    assert outcome.log.index("main.cu(7)") < outcome.log.index("cub.cuh(10)")
    assert "errors detected" not in outcome.log


def test_an_error_of_the_assembler_names_no_temporary_file() -> None:
    log = (
        "ptxas ./tmpxft_000015de_00000000-6_e2.ptx, line 54; error   : Not a name of any known instruction: 'foo'\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n"
    )
    outcome = explain(log, ("main.cu",))
    assert outcome.reason == "assembler: Not a name of any known instruction: 'foo'"
    assert "tmpxft" not in outcome.log


def test_too_much_shared_memory_is_told_with_the_kernels_name() -> None:
    log = "ptxas error   : Entry function '_Z3bigPf' uses too much shared data (0x13880 bytes, 0xc000 max)\n"
    assert explain(log, ("main.cu",)).reason == (
        "assembler: Entry function 'big' uses too much shared data (0x13880 bytes, 0xc000 max)"
    )


def test_an_error_of_the_hosts_compiler_is_told_too() -> None:
    log = "main.cu:1:10: fatal error: nope.h: No such file or directory\n    1 | #include\n"
    assert explain(log, ("main.cu",)).reason == "main.cu:1:10: fatal error: nope.h: No such file or directory"


def test_a_missing_function_of_the_host_is_named() -> None:
    log = "/usr/bin/ld: ./tmpxft_00001606_00000000-11_e5.o: in function `ksearch_run':\nundefined reference to `f()'\n"
    assert explain(log, ("main.cu",)).reason == "linker: undefined reference to f()"


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z4softILi256EEvPKfPfi", "soft<256>"),
        ("_Z2ttILi3ELb1EfEvPT1_", "tt<3, true, float>"),
        ("_Z2ttILin3ELb0E5pointEvPT1_", "tt<-3, false, point>"),
        ("_ZN1n37_GLOBAL__N__68d2483a_5_e5_cu_6f3518992kkEPf", "n::kk"),
        ("_ZN5spaceL4kernEv", "space::kern"),
        ("_Z1kIN3foo3barEEvv", "k<…>"),
        ("plain", "plain"),
        ("_Z999x", "_Z999x"),
        ("_Z", "_Z"),
        ("_ZN1a", "a"),
    ],
)
def test_symbols_become_what_people_wrote(symbol: str, name: str) -> None:
    assert readable(symbol) == name
