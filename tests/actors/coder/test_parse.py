from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.coder.parse import MAX_FILES, MAX_SOURCE_BYTES, declines, parse_answer, render_files
from messages.tasks import Candidate, SourceFile

ENTRY = "ksearch_run"
CODE = 'extern "C" int ksearch_run(void** in) { return 0; }'


def parsed(text: str) -> Candidate:
    candidate, complaint = parse_answer(text, language="cpp", entry_point=ENTRY)
    assert candidate is not None, complaint
    assert complaint == ""
    return candidate


def complained(text: str) -> str:
    candidate, complaint = parse_answer(text, language="cpp", entry_point=ENTRY)
    assert candidate is None
    return complaint


def block(code: str = CODE, info: str = "cpp") -> str:
    return f"```{info}\n{code}\n```"


code_text = st.text(st.one_of(st.sampled_from("`~\n\r\t #/ab"), st.characters(exclude_categories=["Cs"])), max_size=80)
paths = st.from_regex(r"[a-z][a-z0-9_]{0,8}(/[a-z]{1,5})?\.(h|cpp)", fullmatch=True)


@given(main=code_text, others=st.dictionaries(paths, code_text.filter(str.strip), max_size=3))
@settings(deadline=None, max_examples=300)
def test_files_come_back_from_their_fences_as_they_were(main: str, others: dict[str, str]) -> None:
    main_text = f"{ENTRY}(){main}" + "x" * 400
    named = {f"d/{path}": text.replace(ENTRY, "") or "x" for path, text in others.items()}
    files = (
        SourceFile(path="kernel.cpp", text=main_text),
        *(SourceFile(path=path, text=text) for path, text in named.items() if text.strip()),
    )
    candidate = parsed(f"I did it.\n\n{render_files(files, 'cpp')}\n\nDone.")
    assert candidate.files == files


def test_a_fence_inside_the_code_does_not_end_the_file() -> None:
    files = (SourceFile(path="kernel.cpp", text=f"/*\n```\nusage\n````\n*/\n{CODE}"),)
    assert parsed(render_files(files, "cpp")).files == files


def test_code_keeps_its_hexadecimal_floats_trailing_spaces_and_blank_lines() -> None:
    code = f"\n\n{CODE}  \nfloat ln2 = 0x1.62e43p-1f;\t\n\n"
    assert parsed(block(code)).files[0].text == code


def test_a_fragment_before_the_program_is_not_the_program() -> None:
    answer = f"First\n{block('ksearch_run(in);')}\nthen the whole:\n{block()}\nand\n{block('int unrelated;' * 20)}"
    assert [file.text for file in parsed(answer).files] == [CODE]


def test_of_two_programs_of_the_same_size_the_last_one_counts() -> None:
    first, second = CODE.replace("0", "1"), CODE.replace("0", "2")
    assert parsed(f"{block(first)}\n{block(second)}").files[0].text == second


def test_of_two_programs_the_last_one_counts_however_long_the_draft_is() -> None:
    draft, final = "// a draft\n" * 10 + CODE.replace("0", "1"), CODE.replace("0", "2") + "\nint other;" * 3
    assert parsed(f"{block(draft)}\nNo:\n{block(final)}").files[0].text == final
    named = "cpp path=kernel.cpp"
    assert [file.text for file in parsed(f"{block(draft, named)}\nNo:\n{block(final, named)}").files] == [final]


@pytest.mark.parametrize(
    "call", ["ksearch_run(in);", "int ksearch_run(void** in);", "if (ksearch_run(in)) { stop(); }"]
)
def test_a_call_behind_the_program_is_not_the_program(call: str) -> None:
    assert parsed(f"{block()}\nIt is called so:\n{block(call + '// by the judge' * 9)}").files[0].text == CODE


def test_a_header_that_declares_the_entry_point_is_not_the_main_file() -> None:
    header = "int ksearch_run(void**);" + "// long\n" * 40
    files = parsed(f"{block(header, 'cpp path=api.h')}\n{block(CODE, 'cpp path=k.cpp')}").files
    assert [file.path for file in files] == ["k.cpp", "api.h"]


def test_a_comment_on_the_first_line_names_a_file_and_stays_in_it() -> None:
    code = f"// file: src/fast.cpp\n{CODE}"
    file = parsed(block(code)).files[0]
    assert (file.path, file.text) == ("src/fast.cpp", code)


def test_blocks_of_other_languages_are_left_out() -> None:
    answer = f"{block('g++ -O3 ksearch_run.cpp ' * 40, 'bash')}\n{block()}\n{block('{}', 'json')}"
    assert len(parsed(answer).files) == 1


def test_windows_line_ends_around_the_fences_are_accepted() -> None:
    assert ENTRY in parsed(block().replace("\n", "\r\n")).files[0].text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "the answer is empty"),
        ("I have no rule for `conv2d`.", "I have no rule for `conv2d`."),
        (f"```cpp\n{CODE}", "never closed"),
        ("```cpp\n   \n```", "is empty"),
        (block("int main() { return 0; }"), "entry point 'ksearch_run' does not occur"),
        (block("int my_ksearch_runner();"), "does not occur"),
        (block(info="bash"), "tagged 'cpp'; found 'bash'"),
        (f"{block(info='cpp path=kernel.cpp')}\n{block()}", "two fenced blocks have the path 'kernel.cpp'"),
        (block(info="cpp path=/etc/passwd"), "is absolute"),
        (block(info="cpp path=C:/x.cpp"), "is absolute"),
        (block(info="cpp path=a/../../b.cpp"), "no '..'"),
        (block(info="cpp path=a$b.cpp"), "is unusable"),
        (block(CODE + " " * MAX_SOURCE_BYTES), "too long"),
        (f"{block()}\n{block(' ', 'cpp path=b.h')}", "line 4 of the answer (b.h) is empty"),
        ("\n".join(block(info=f"cpp path=f{i}.cpp") for i in range(MAX_FILES + 1)), f"{MAX_FILES} are allowed"),
    ],
)
def test_an_unusable_answer_is_told_precisely_what_was_wrong(answer: str, said: str) -> None:
    assert said in complained(answer)


@given(st.text(string.printable, max_size=300))
@settings(deadline=None)
def test_any_text_is_either_a_candidate_or_a_complaint(text: str) -> None:
    candidate, complaint = parse_answer(text, language="cpp", entry_point="a")
    assert (candidate is None) == bool(complaint)


def test_a_triton_program_is_a_python_file_whose_illustrations_are_left_out() -> None:
    kernel = (
        "import triton\n\n\n@triton.jit\ndef scale(x_ptr):\n    pass\n\n\ndef ksearch_run(x, out):\n    scale[(1,)](x)"
    )
    text = f"It used to be\n\n{block('y = x * 2', 'python')}\n\nand is now\n\n{block(kernel, 'python path=kernel.py')}"
    candidate, complaint = parse_answer(text, language="triton", entry_point=ENTRY)
    assert complaint == ""
    assert candidate is not None
    assert candidate.files == (SourceFile(path="kernel.py", text=kernel),)
    assert parse_answer(block(kernel, "cpp"), language="triton", entry_point=ENTRY)[0] is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("Nothing further: it is bound by memory.", "it is bound by memory."),
        ("\nnothing further. All\nwas tried.", "All was tried."),
        ("NOTHING FURTHER", "it gives no reason"),
        (f"Nothing further comes to mind but this:\n\n{block()}", ""),
        ("I see nothing further.", ""),
        ("", ""),
    ],
)
def test_an_answer_may_say_that_nothing_is_left_to_try(answer: str, why: str) -> None:
    assert declines(answer) == why
