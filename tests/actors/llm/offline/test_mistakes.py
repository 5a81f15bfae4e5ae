"""Spoiled answers are what their name says, and the same every time."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from actors.coder.answers import read_candidate
from actors.coder.parse import parse_answer
from actors.llm.answer_text import split_reasoning
from actors.llm.base import Request
from actors.llm.offline import OfflineModel
from actors.llm.offline.answers import code_answer, plan_answer
from actors.llm.offline.mistakes import MISTAKES, RAMBLING_CHARS, MistakeKind, Mistakes, Spoiled
from actors.planner.answers import parse_script, read_script
from actors.planner.core.scripts import conflicts
from actors.planner.prompts import plan_request
from messages.codec import CodecError, decode_script
from messages.facts import PlanRequested
from messages.tasks import Candidate, SourceFile
from tests.actors.llm.offline.prompts import coder_prompt, description, write_job
from tests.actors.llm.offline.test_planning import node, search

STATE = search(node("n1", "Fuse stages, block by block"), node("n2", "Share rows among threads", state="pruned"))
PLANNER_PROMPT = plan_request(STATE, PlanRequested(job_id="r1-p1", purpose="revise", wanted=4), description()).prompt
CODER_PROMPT = coder_prompt(write_job("Fuse", "Add to the plan: `fuse vectorise threads rows`."))
PLAN, CODE = plan_answer(PLANNER_PROMPT), code_answer(CODER_PROMPT, seed=0)
SEEDS = range(12)
ROWS, COLUMNS = 37, 131


def planned(kind: MistakeKind, seed: int) -> Spoiled:
    return Mistakes(1.0, seed=seed, kinds=[kind]).spoil("planner", PLANNER_PROMPT, PLAN)


def coded(kind: MistakeKind, seed: int) -> Spoiled:
    return Mistakes(1.0, seed=seed, kinds=[kind]).spoil("coder", CODER_PROMPT, CODE)


def source(answer: str) -> str:
    candidate, complaint = parse_answer(answer, language="cpp", entry_point="ksearch_run")
    assert candidate is not None, complaint
    return candidate.files[0].text


def compiled(text: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    folder.mkdir()
    (folder / "kernel.cpp").write_text(text)
    command = ["g++", "-std=c++17", "-O1", "-fopenmp", "-fPIC", "-shared", "-o", "kernel.so", "kernel.cpp"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)


def outputs(product: Path) -> list[float]:
    """Run a program on inputs that are all different, into an output that is not a number."""
    sizes = (ROWS * COLUMNS, ROWS * COLUMNS, COLUMNS)
    inputs = [(ctypes.c_float * size)(*(0.3 + 0.001 * place for place in range(size))) for size in sizes]
    output = (ctypes.c_float * (ROWS * COLUMNS))(*([math.nan] * (ROWS * COLUMNS)))
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(values) for values in inputs))
    targets = (ctypes.c_void_p * 1)(ctypes.addressof(output))
    assert ctypes.CDLL(str(product)).ksearch_run(pointers, targets, None) == 0
    return list(output)


def test_without_a_rate_no_answer_is_touched() -> None:
    for seed in SEEDS:
        assert Mistakes(0.0, seed=seed).spoil("coder", CODER_PROMPT, CODE) == Spoiled(text=CODE)


def test_about_as_many_answers_are_spoiled_as_the_rate_says_and_always_the_same() -> None:
    mistakes, again = Mistakes(0.1, seed=5), Mistakes(0.1, seed=5)
    prompts = [f"{CODER_PROMPT}\n{number}" for number in range(400)]
    spoiled = [mistakes.spoil("coder", prompt, CODE) for prompt in prompts]
    assert spoiled == [again.spoil("coder", prompt, CODE) for prompt in reversed(prompts)][::-1]
    made = [each.mistake for each in spoiled if each.mistake is not None]
    assert 20 <= len(made) <= 60
    assert set(made) == {"does_not_build", "wrong_numbers", "prose", "empty", "cut_off", "rambling", "thinks_aloud"}


def test_each_kind_that_fits_the_role_can_have_a_share_of_its_own() -> None:
    kinds: tuple[MistakeKind, ...] = ("prose", "empty", "malformed_json", "wrong_schema")
    mistakes = Mistakes(0.1, seed=5, kinds=kinds, of_each=True)
    made = Counter(mistakes.spoil("planner", f"{PLANNER_PROMPT}\n{number}", PLAN).mistake for number in range(400))
    assert all(20 <= made[kind] <= 65 for kind in kinds)
    assert made[None] == 400 - sum(made[kind] for kind in kinds)


def test_every_kind_can_be_made() -> None:
    kinds = {Mistakes(1.0, seed=seed).spoil("planner", PLANNER_PROMPT, PLAN).mistake for seed in range(100)}
    kinds |= {Mistakes(1.0, seed=seed).spoil("coder", CODER_PROMPT, CODE).mistake for seed in range(100)}
    assert kinds == {None, *MISTAKES} - {"sloppy_blocks"}  # which takes a base code; see below


def test_code_that_shall_not_build_is_a_program_that_the_compiler_refuses(tmp_path: Path) -> None:
    texts = {source(coded("does_not_build", seed).text) for seed in SEEDS}
    assert len(texts) >= 3
    for number, text in enumerate(texts):
        assert b"error" in compiled(text, tmp_path / str(number)).stderr


def test_wrong_numbers_come_from_a_program_that_builds_and_ends(tmp_path: Path) -> None:
    assert compiled(source(CODE), tmp_path / "right").returncode == 0
    right = outputs(tmp_path / "right" / "kernel.so")
    texts = {source(coded("wrong_numbers", seed).text) for seed in SEEDS}
    assert len(texts) >= 3
    for number, text in enumerate(texts):
        done = compiled(text, tmp_path / str(number))
        assert done.returncode == 0, done.stderr
        wrong = outputs(tmp_path / str(number) / "kernel.so")
        assert any(not abs(a - b) <= 1e-3 * abs(b) for a, b in zip(wrong, right, strict=True)), text


@pytest.mark.parametrize("kind", ["prose", "empty", "cut_off"])
def test_an_answer_without_a_program_or_a_script_is_unusable(kind: MistakeKind) -> None:
    for seed in SEEDS:
        candidate, complaint = parse_answer(coded(kind, seed).text, language="cpp", entry_point="ksearch_run")
        assert (candidate is None, complaint != "") == (True, True)
        script, complaint = parse_script(planned(kind, seed).text)
        assert (script is None, complaint != "") == (True, True)


def test_rambling_is_too_long_for_a_script_and_for_a_program_and_the_complaint_is_short() -> None:
    complaints = set()
    for seed in SEEDS:
        text = planned("rambling", seed).text
        script, complaint = parse_script(text)
        assert (script, len(text) >= RAMBLING_CHARS, len(complaint) < 1000) == (None, True, True)
        complaints.add(complaint)
        text = coded("rambling", seed).text
        candidate, complaint = parse_answer(text, language="cpp", entry_point="ksearch_run")
        assert (candidate, len(text) >= RAMBLING_CHARS, len(complaint) < 1000) == (None, True, True)
        complaints.add(complaint)
    assert any("the program is too long: 20" in complaint for complaint in complaints)
    assert any("length <= 8000" in complaint for complaint in complaints)
    assert any("no code block" in complaint for complaint in complaints)


def test_a_cut_off_answer_ends_as_one_at_the_token_limit_does() -> None:
    assert coded("cut_off", 1).finish_reason == "length"
    assert coded("prose", 1).finish_reason == "stop"


@pytest.mark.parametrize(
    ("kind", "said"), [("malformed_json", ""), ("wrong_schema", ""), ("machine_field", "unknown field")]
)
def test_a_script_that_breaks_the_format_is_refused(kind: MistakeKind, said: str) -> None:
    for seed in SEEDS:
        read = read_script(planned(kind, seed).text)
        assert read.script is None or read.unread
        assert all(said in reason for reason in (read.complaint or said, *(each.reason for each in read.unread)))


def test_a_script_that_names_dead_nodes_can_be_read_and_not_applied() -> None:
    named = set()
    for seed in SEEDS:
        script, complaint = parse_script(planned("dead_node", seed).text)
        assert script is not None, complaint
        (refusal,) = conflicts(STATE, script, limit=9)
        named.add(refusal.reason)
    assert any("n2" in reason for reason in named)
    assert any("n9" in reason for reason in named)


def test_a_draft_in_the_reasoning_does_not_hide_the_answer() -> None:
    marks = set()
    for seed in range(40):
        text = planned("thinks_aloud", seed).text
        assert read_script(text) == read_script(PLAN)
        marks.add(text.partition("Okay")[0])
        text = coded("thinks_aloud", seed).text
        assert (source(split_reasoning(text).answer), len(text) > 2 * len(CODE)) == (source(CODE), True)
    assert len(marks) == 7


def test_harmless_slips_are_read_as_they_are_meant() -> None:
    meant = read_script(PLAN).script
    assert meant is not None
    texts = {planned("harmless_slips", seed).text for seed in range(40)}
    assert len(texts) > 8
    for text in texts:
        with pytest.raises(CodecError):
            decode_script(text[text.index("{") : text.rindex("}") + 1])
        read = read_script(text)
        assert read.script is not None, read.complaint
        assert (len(read.script.edits), read.unread) == (len(meant.edits), ())


def test_sloppy_blocks_come_to_the_program_that_is_meant() -> None:
    base = Candidate(
        language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text=source(CODE)),)
    )
    job = msgspec.structs.replace(
        write_job("Share", "Add to the plan: `stream dynamic`."), base=base, base_outcome="2.0x"
    )
    prompt = coder_prompt(job)
    answer = code_answer(prompt, seed=0)
    texts = {Mistakes(1.0, seed=seed, kinds=["sloppy_blocks"]).spoil("coder", prompt, answer).text for seed in SEEDS}
    assert len(texts) >= 3
    for text in texts:
        read = read_candidate(job, text)
        assert read.candidate is not None, read.complaint
        assert ("SEARCH" in text, all("but for blanks" in note for note in read.notes)) == (True, True)
        assert read.candidate.files[0].text.split() == source(answer).split()


def test_python_is_spoiled_as_python() -> None:
    code = (
        "import triton.language as tl\n\ndef ksearch_run(x, output):\n    value = a * b\n"
        "    total = tl.sum(value, axis=0)\n    return total\n"
    )
    answer = f"Here.\n\n```python path=kernel.py\n{code}```\n"
    for seed in SEEDS:
        broken = Mistakes(1.0, seed=seed, kinds=["does_not_build"]).spoil("coder", CODER_PROMPT, answer)
        with pytest.raises(SyntaxError):
            compile(broken.text.split("```")[1].partition("\n")[2], "kernel.py", "exec")
        wrong = Mistakes(1.0, seed=seed, kinds=["wrong_numbers"]).spoil("coder", CODER_PROMPT, answer)
        compile(wrong.text.split("```")[1].partition("\n")[2], "kernel.py", "exec")
        assert wrong.text != answer


def test_an_answer_that_has_not_what_a_mistake_takes_is_left_alone() -> None:
    prose = "The built-in rules cannot write this program."
    assert Mistakes(1.0, kinds=["does_not_build"]).spoil("coder", CODER_PROMPT, prose) == Spoiled(text=prose)


@pytest.mark.anyio
async def test_the_model_counts_its_mistakes() -> None:
    model = OfflineModel(mistakes=Mistakes(1.0, kinds=["empty"]))
    answer = await model.complete(Request(request_id="r1-w1", role="coder", system="", parts=(CODER_PROMPT,)))
    assert answer.text == ""
    assert model.mistakes_made == {"empty": 1}
