"""What is made of a compiler's output."""

from __future__ import annotations

from evaluators.languages.cpp.diagnostics import MAX_CHARACTERS, bound, explain

HEADER_FIRST = """In file included from main.cpp:1:
/usr/include/c++/12/vector:10:5: error: static assertion failed
   10 |     static_assert(x);
main.cpp: In function 'int f()':
main.cpp:7:9: error: no matching function
    7 |         g(1);
      |         ^
main.cpp:3:6: note: candidate: 'void g()'
"""


def test_the_candidates_own_error_comes_before_those_in_headers() -> None:
    outcome = explain(HEADER_FIRST, ("main.cpp",))
    assert outcome.reason == "main.cpp:7:9: error: no matching function"
    assert outcome.log.index("main.cpp:7:9") < outcome.log.index("static assertion")
    assert "note: candidate" in outcome.log


def test_an_error_of_the_linker_names_the_symbol() -> None:
    assert (
        explain("ld: main.o: undefined reference to `f()'\n", ("main.cpp",)).reason
        == "linker: undefined reference to f()"
    )


def test_running_out_of_memory_is_told_as_that() -> None:
    outcome = explain("virtual memory exhausted: Cannot allocate memory\n", ("main.cpp",))
    assert outcome.reason == "the compiler needed more memory than it may use"


def test_a_silent_failure_has_a_reason_too() -> None:
    assert explain("", ("main.cpp",)).reason == "the compiler failed without a word"


def test_a_long_log_is_cut_at_a_lines_end() -> None:
    text = bound("a line of some length\n" * 1000)
    assert len(text) <= MAX_CHARACTERS + 10
    assert text.endswith("a line of some length\n(cut)")
