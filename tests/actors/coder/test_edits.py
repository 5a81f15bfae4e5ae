"""Search/replace blocks: applied as they say, or refused with what would have to be said instead."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.coder.edits import SearchReplace, apply_edits, find_edits
from actors.coder.parse import UnusableError
from messages.tasks import SourceFile

KERNEL = """\
#include "tile.h"

static float sum(const float* x) {
    float total = 0.0f;
    for (int i = 0; i < 64; ++i) {
        total += x[i];
    }
    return total;
}

int ksearch_run() {
    return 0;
}
"""
HEADER = "#pragma once\nconstexpr int TILE = 64;\n"
FILES = (SourceFile(path="kernel.cpp", text=KERNEL), SourceFile(path="tile.h", text=HEADER))


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"


def fenced(*blocks: str, info: str = "cpp") -> str:
    return "\n".join((f"```{info}", *blocks, "```"))


def applied(answer: str, files: tuple[SourceFile, ...] = FILES) -> tuple[dict[str, str], tuple[str, ...]]:
    changed, notes = apply_edits(find_edits(answer).edits, files)
    return {file.path: file.text for file in changed}, notes


def refused(answer: str, files: tuple[SourceFile, ...] = FILES) -> str:
    with pytest.raises(UnusableError) as caught:
        apply_edits(find_edits(answer).edits, files)
    return str(caught.value)


def test_lines_that_are_there_once_are_replaced_and_nothing_else_is() -> None:
    texts, notes = applied(
        fenced(block("        total += x[i];", "        total += x[i] * x[i];"), info="cpp path=kernel.cpp")
    )
    assert texts == {"kernel.cpp": KERNEL.replace("+= x[i]", "+= x[i] * x[i]"), "tile.h": HEADER}
    assert notes == ()


def test_several_blocks_of_several_files_apply_in_order_each_to_what_the_others_left() -> None:
    answer = "\n".join(
        (
            "I widen the tile.",
            fenced(
                block("    float total = 0.0f;", "    double total = 0.0;"),
                block("    double total = 0.0;", "    double total = 1.0;"),
                info="cpp path=kernel.cpp",
            ),
            fenced(block("constexpr int TILE = 64;", "constexpr int TILE = 128;"), info="cpp path=tile.h"),
        )
    )
    texts, _ = applied(answer)
    assert "double total = 1.0;" in texts["kernel.cpp"]
    assert texts["tile.h"] == HEADER.replace("64", "128")


def test_blocks_without_fences_and_with_the_path_behind_the_marker_are_read() -> None:
    answer = (
        "Here:\n<<<<<<< SEARCH tile.h\nconstexpr int TILE = 64;\n=======\nconstexpr int TILE = 32;\n>>>>>>> REPLACE\n"
    )
    assert applied(answer)[0]["tile.h"] == HEADER.replace("64", "32")


def test_without_a_path_the_only_file_that_fits_is_meant() -> None:
    assert applied(fenced(block("constexpr int TILE = 64;", "constexpr int TILE = 32;")))[0]["tile.h"].endswith("32;\n")


def test_lines_may_be_removed() -> None:
    texts, _ = applied("<<<<<<< SEARCH\n    float total = 0.0f;\n=======\n>>>>>>> REPLACE")
    assert texts["kernel.cpp"] == KERNEL.replace("    float total = 0.0f;\n", "")


def test_a_match_but_for_blanks_takes_the_files_indentation_and_is_noted() -> None:
    answer = fenced(
        block(
            "for (int i = 0; i < 64;  ++i) {\n    total += x[i];\n}",
            "for (int i = 0; i < 32; ++i) {\n    total += x[i];\n}",
        )
    )
    texts, notes = applied(answer)
    assert texts["kernel.cpp"] == KERNEL.replace("i < 64", "i < 32")
    assert notes == ("search/replace block 1 (line 2 of the answer): matches lines 5 to 7 but for blanks",)


@pytest.mark.parametrize("indent", ["  ", "        ", "\t\t"])
@pytest.mark.parametrize("blanks", ["", "  ", "\t"])
def test_blanks_at_line_ends_and_a_common_indentation_do_not_count(indent: str, blanks: str) -> None:
    searched = "    for (int i = 0; i < 64; ++i) {\n        total += x[i];\n    }"
    shifted = "\n".join(f"{indent}{line}{blanks}" for line in searched.split("\n"))
    texts, notes = applied(fenced(block(shifted, shifted.replace("i < 64", "i < 32"))))
    assert [line.rstrip() for line in texts["kernel.cpp"].split("\n")] == KERNEL.replace("i < 64", "i < 32").split("\n")
    assert "lines 5 to 7 but for blanks" in notes[0]


def test_the_nearest_lines_are_shown_with_their_numbers_as_they_are() -> None:
    complaint = refused(fenced(block("    float total = 0.0f;\n    for (int i = 0; i < 65; ++i) {", "x")))
    assert "    4|     float total = 0.0f;\n    5|     for (int i = 0; i < 64; ++i) {" in complaint


def test_a_part_of_a_line_is_taken_where_it_is_there_once_and_is_noted() -> None:
    texts, notes = applied(fenced(block("i < 64", "i < 16")))
    assert texts["kernel.cpp"] == KERNEL.replace("i < 64", "i < 16")
    assert notes == ("search/replace block 1 (line 2 of the answer): matches a part of line 5",)


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("}", ["are there 2 times (from lines 9, 13)", "search for more of them"]),
        ("    float total = 0.0f;\n    for (int i = 0; i < 65; ++i) {",
         ["not there", "Nearest are lines 4 to 5, where line 5 is 'for (int i = 0; i < 64; ++i) {'"]),
        ("    float tatal = 0.0f;", ["Nearest are lines 4 to 4, where line 4 is 'float total = 0.0f;'"]),
        ("import torch", ["Nothing there is like them"]),
        ("  for (int i = 0; i < 64; ++i) {\n   total += x[i];\n}",
         ["laid out differently: copy them as they are:\n    5| "]),
        ("", ["searches for nothing"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_where_it_nearly_does(search: str, said: list[str]) -> None:
    complaint = refused(fenced(block(search, "x"), info="cpp path=kernel.cpp"))
    assert complaint.startswith("search/replace block 1 (line 2 of the answer): ")
    for words in said:
        assert words in complaint


def test_an_unknown_file_and_several_that_fit_are_named() -> None:
    assert "no file 'other.h'; there is 'kernel.cpp', 'tile.h'" in refused(
        fenced(block("x", "y"), info="cpp path=other.h")
    )
    twins = (SourceFile(path="a.cpp", text="int a;\nint b;"), SourceFile(path="b.cpp", text="int a;\nint c;"))
    assert "is in" not in refused(fenced(block("int a;", "int x;")), twins)
    assert "'a.cpp' and in 'b.cpp': say which with path=NAME" in refused(fenced(block("int a;", "int x;")), twins)


def test_nothing_is_applied_unless_everything_applies_and_each_complaint_is_told() -> None:
    complaint = refused(
        fenced(block("    float total = 0.0f;", "x"), block("missing one", "x"), block("missing two", "y"))
    )
    assert "block 2" in complaint
    assert "block 3" in complaint
    assert "block 1" not in complaint


def test_blocks_that_change_nothing_are_refused() -> None:
    assert refused(fenced(block("    return 0;", "    return 0;"))) == "the search/replace blocks change nothing"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("<<<<<<< SEARCH\nint a;\n", "no line '=======' between"),
        ("<<<<<<< SEARCH\nint a;\n=======\nint b;\n", "no line '>>>>>>> REPLACE' at its end"),
        ("<<<<<<< SEARCH\nint a;\n<<<<<<< SEARCH\n", "on line 1 of the answer: no line '======='"),
    ],
)
def test_a_block_that_is_not_ended_is_said_to_be_cut_off(answer: str, said: str) -> None:
    with pytest.raises(UnusableError, match=r"'<<<<<<< SEARCH' on line 1|the block") as caught:
        find_edits(answer)
    assert said in str(caught.value)


def test_what_stands_around_blocks_is_left_with_its_lines_where_they_were() -> None:
    answer = f"one\n{fenced(block('a', 'b'))}\n```cpp path=new.h\nint x;\n```"
    found = find_edits(answer)
    assert found.rest.split("\n")[0] == "one"
    assert found.rest.split("\n")[8:] == ["```cpp path=new.h", "int x;", "```"]
    assert not any(line.strip() for line in found.rest.split("\n")[1:8])


words = st.text("ab{}() \t;`#/<>=", min_size=0, max_size=6)
_MARKERS = ("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE")


@given(
    lines=st.lists(words, min_size=1, max_size=12),
    spans=st.lists(
        st.tuples(st.integers(0, 11), st.integers(1, 4), st.lists(words, max_size=4)), min_size=1, max_size=3
    ),
)
@settings(deadline=None, max_examples=300)
def test_any_edit_of_lines_that_are_there_once_gives_what_it_says(
    lines: list[str], spans: list[tuple[int, int, list[str]]]
) -> None:
    unique = [f"{number}:{line}" for number, line in enumerate(lines)]
    expected = list(unique)
    edits: list[str] = []
    for start, count, fresh in spans:
        searched = expected[start : start + count]
        replacement = [f"r{len(edits)}.{number}{line}" for number, line in enumerate(fresh)]
        if not searched:
            continue
        edits.append(block("\n".join(searched), "\n".join(replacement)) if replacement else _removal(searched))
        expected[start : start + count] = replacement
    files = (SourceFile(path="k.cpp", text="\n".join(unique)),)
    if not edits or expected == unique:
        return
    texts, notes = applied("````cpp path=k.cpp\n" + "\n".join(edits) + "\n````", files)
    assert texts["k.cpp"] == "\n".join(expected)
    assert notes == ()


@given(answer=st.lists(st.one_of(st.sampled_from([*_MARKERS, "```cpp path=k.cpp", "```"]), words), max_size=14))
@settings(deadline=None, max_examples=300)
def test_any_answer_is_either_applied_or_refused(answer: list[str]) -> None:
    try:
        edits = find_edits("\n".join(answer)).edits
        changed, _ = apply_edits(edits, FILES)
    except UnusableError:
        return
    assert changed != FILES


def test_a_block_is_what_it_was_written_as() -> None:
    (edit,) = find_edits(fenced(block("a\n```\nb", "c"), info="cpp path=k.cpp")).edits
    assert edit == SearchReplace(line=2, path="k.cpp", search=("a", "```", "b"), replace=("c",))


def _removal(searched: list[str]) -> str:
    return "\n".join(("<<<<<<< SEARCH", *searched, "=======", ">>>>>>> REPLACE"))
