"""An answer in either format becomes a candidate, or a complaint that says what to do better."""

from __future__ import annotations

import msgspec
import pytest

from actors.coder.answers import EDITS_FROM_CHARS, read_candidate, wants_edits
from actors.coder.parse import Parsed
from actors.coder.prompts import request_for
from messages.commands import WriteCandidate
from messages.tasks import AttemptBrief, Candidate, SourceFile
from tests.actors.coder.jobs import job

BASE = Candidate(
    language="cuda",
    entry_point="ksearch_run",
    files=(
        SourceFile(path="kernel.cu", text='#include "tile.h"\nint ksearch_run() {\n    return TILE;\n}\n'),
        SourceFile(path="tile.h", text="#pragma once\n#define TILE 64\n"),
    ),
)
LATEST = Candidate(
    language="cuda",
    entry_point="ksearch_run",
    files=(SourceFile(path="kernel.cu", text="int ksearch_run() {\n    return broken;\n}\n"),),
)
EDIT = "```cuda path=tile.h\n<<<<<<< SEARCH\n#define TILE 64\n=======\n#define TILE 128\n>>>>>>> REPLACE\n```"


def cuda(**changes: object) -> WriteCandidate:
    return job(language="cuda", mode="improve", base=BASE, **changes)


def read(text: str, asked: WriteCandidate | None = None, *, is_complete: bool = True) -> Parsed:
    return read_candidate(asked or cuda(), text, is_complete=is_complete)


def test_blocks_change_one_file_of_several_and_the_others_stay() -> None:
    found = read(f"A larger tile.\n\n{EDIT}\n")
    assert found.candidate is not None
    assert found.candidate.files == (BASE.files[0], SourceFile(path="tile.h", text="#pragma once\n#define TILE 128\n"))
    assert (found.complaint, found.notes) == ("", ())


def test_whole_files_of_several_are_a_candidate_whichever_format_was_asked_for() -> None:
    text = "```cuda path=kernel.cu\nint ksearch_run() { return 1; }\n```\n```cuda path=a.h\nint a;\n```"
    for asked in (cuda(edit_format="search-replace"), cuda(edit_format="whole")):
        found = read(text, asked)
        assert found.candidate is not None
        assert [file.path for file in found.candidate.files] == ["kernel.cu", "a.h"]


def test_a_new_file_may_come_whole_beside_blocks() -> None:
    found = read(f"{EDIT}\n```cuda path=warp.h\n#define WARP 32\n```\nand\n```\nan illustration\n```")
    assert found.candidate is not None
    assert [file.path for file in found.candidate.files] == ["kernel.cu", "tile.h", "warp.h"]
    assert found.candidate.files[2].text == "#define WARP 32"


def test_what_failed_is_edited_in_debugging_and_the_base_where_only_it_fits() -> None:
    debug = job(language="cuda", mode="debug", base=BASE, current=LATEST)
    text = "<<<<<<< SEARCH\n    return broken;\n=======\n    return 0;\n>>>>>>> REPLACE"
    found = read(text, debug)
    assert found.candidate is not None
    assert found.candidate.files[0].text == LATEST.files[0].text.replace("broken", "0")
    found = read(EDIT, debug)
    assert found.candidate is not None
    assert found.candidate.files[1].text.endswith("128\n")
    assert found.notes == ("the blocks were applied to the base code: only there they fit",)


def test_a_block_that_fits_nowhere_is_told_against_the_code_that_is_edited() -> None:
    found = read(EDIT.replace("TILE 64", "TILE 65"))
    assert found.candidate is None
    assert found.complaint.startswith("against the base code: search/replace block 1 (line 2 of the answer): ")
    assert "'#define TILE 64' and not '#define TILE 65'" in found.complaint


def test_blocks_without_any_code_yet_are_refused_and_say_what_is_wanted() -> None:
    assert "return complete files" in read(EDIT, job(language="cuda")).complaint


def test_an_entry_point_that_was_edited_away_is_missed() -> None:
    text = "<<<<<<< SEARCH\nint ksearch_run() {\n=======\nint run() {\n>>>>>>> REPLACE"
    assert "'ksearch_run' is gone" in read(text).complaint


@pytest.mark.parametrize(
    ("edit_format", "length", "wanted"),
    [
        ("whole", EDITS_FROM_CHARS * 2, False),
        ("search-replace", 10, True),
        ("auto", EDITS_FROM_CHARS // 2, False),
        ("auto", EDITS_FROM_CHARS + 1, True),
    ],
)
def test_by_itself_long_code_is_edited_and_short_code_rewritten(edit_format: str, length: int, wanted: bool) -> None:
    base = Candidate(language="cpp", entry_point="f", files=(SourceFile(path="k.cpp", text="x" * length),))
    assert wants_edits(job(base=base, edit_format=edit_format)) is wanted
    assert not wants_edits(job(edit_format=edit_format))


PROGRAM = "int ksearch_run() { return 7; }"


def whole(text: str, *, is_complete: bool = True) -> Parsed:
    return read(text, job(), is_complete=is_complete)


def test_a_last_fence_that_was_forgotten_is_noted_and_one_that_was_cut_off_is_not_taken() -> None:
    found = whole(f"```cpp\n{PROGRAM}")
    assert found.candidate is not None
    assert found.candidate.files[0].text == PROGRAM
    assert found.notes == ("the fence on line 1 of the answer was left open",)
    assert "never closed" in whole(f"```cpp\n{PROGRAM}", is_complete=False).complaint


def test_code_that_was_escaped_for_html_is_restored_and_noted() -> None:
    found = whole("```cpp\n#include &lt;cstdint&gt;\nint ksearch_run() { return 1 &amp;&amp; 2; }\n```")
    assert found.candidate is not None
    assert found.candidate.files[0].text == "#include <cstdint>\nint ksearch_run() { return 1 && 2; }"
    assert found.notes == ("the fenced block on line 1 of the answer was escaped for HTML",)


def test_code_that_only_speaks_of_html_is_left_as_it_is() -> None:
    code = '#include <string>\nint ksearch_run() { puts("&lt;&gt;"); return 0; }'
    found = whole(f"```cpp\n{code}\n```")
    assert found.candidate is not None
    assert found.candidate.files[0].text == code
    assert found.notes == ()


def test_of_several_programs_the_answer_says_which_was_taken() -> None:
    found = whole(f"```cpp\n{PROGRAM}\n```\nor\n```cpp\n{PROGRAM} // better\n```")
    assert found.candidate is not None
    assert found.candidate.files[0].text.endswith("// better")
    assert found.notes == ("the block on line 5 was taken for the program, not what begins on line 1",)


HUNK = "--- a/kernel.cpp\n+++ b/kernel.cpp\n@@ -1,3 +1,3 @@\n-int ksearch_run() {\n+int ksearch_run() { // x"


@pytest.mark.parametrize("text", [f"```diff\n{HUNK}\n```", f"```cpp\n{HUNK}\n```", HUNK])
def test_a_diff_is_called_one(text: str) -> None:
    complaint = whole(text).complaint
    assert "is a diff: return complete files, or search/replace blocks" in complaint


@pytest.mark.parametrize(
    "line",
    ["// ... existing code ...", "  // ... rest of the kernel", "/* ... unchanged ... */", "// rest of file unchanged"],
)
def test_a_comment_in_place_of_code_is_no_complete_file(line: str) -> None:
    complaint = whole(f"```cpp\n{PROGRAM}\n{line}\n```").complaint
    assert "line 2 of kernel.cpp stands for code that was left out" in complaint


@pytest.mark.parametrize(
    "line", ["// ...", "// the remaining rows: masked", "// the rest is summed here", "# existing"]
)
def test_an_ordinary_comment_is_not_taken_for_left_out_code(line: str) -> None:
    assert whole(f"```cpp\n{PROGRAM}\n{line}\n```").candidate is not None


def test_after_two_answers_whose_blocks_do_not_match_the_whole_program_is_asked_for() -> None:
    unmatched = read(EDIT.replace("TILE 64", "TILE 63")).complaint
    missed = AttemptBrief(number=1, fate="unusable", outcome=f"unusable: {unmatched}")
    other = AttemptBrief(number=2, fate="wrong", outcome="wrong: 3 of 4 values")
    once, between = cuda(history=(missed,)), cuda(history=(missed, other, missed))
    twice = cuda(history=(other, missed, missed))
    for told_before, wanted in ((once, True), (between, True), (twice, False)):
        asked = msgspec.structs.replace(told_before, edit_format="search-replace")
        assert wants_edits(asked) == wanted
        told = request_for(asked).parts[-1]
        assert ("with search/replace blocks against" in told, "and no blocks" in told) == (wanted, not wanted)


def test_the_rules_ask_for_whole_lines() -> None:
    assert "names whole lines of the code" in request_for(cuda(edit_format="search-replace")).system
