"""Answers of open models that are served without a reasoning parser, as they look: what is answered is told from what
is only thought."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.coder.actor import read_answer, write_candidate
from actors.coder.prompts import request_for
from actors.llm.answer_text import FenceEnding, JsonEnding, OutsideReasoning, split_reasoning
from actors.llm.base import Answer, Request, ScriptedModel
from actors.planner.answers import read_proposal
from messages.base import Usage
from messages.commands import WriteCandidate
from tests.actors.coder.jobs import APPLY, job

DRAFT_PROGRAM = 'extern "C" int ksearch_run(void** in) {\n' + "    // a long first try\n" * 30 + "    return 1;\n}"
PROGRAM = 'extern "C" int ksearch_run(void** in) {\n    return 2;\n}'
DRAFT_SCRIPT = '{"summary": "a draft", "edits": [{"op": "prune", "node": "n1", "reason": "a draft"}]}'
SCRIPT = '{"summary": "meant", "edits": [{"op": "update", "node": "n1", "priority": 0.5}]}'

DEEPSEEK_R1 = """\
Okay, so I need to fuse the loops. Let me start with the reference. Hmm, the row sum first.

{draft}

Wait, `x` may be aligned to 16 only. But hold on: is that so? {doubt}
</think>

The loops are fused; one pass over the row remains.

{final}"""
QWEN3 = """\
<think>
Okay, let's see. The user wants one action carried out. A first version:

{draft}

But wait, that reads each row twice. {doubt}
</think>

{final}"""
GPT_OSS = (
    "<|channel|>analysis<|message|>We need to produce the answer. The code maybe:\n\n{draft}\n\nBut better. {doubt}"
    "<|end|><|start|>assistant<|channel|>final<|message|>I fused both loops.\n\n{final}<|return|>"
)
GPT_OSS_WITHOUT_TOKENS = (
    "analysisWe need to produce the answer. Maybe:\n\n{draft}\n\nHmm. {doubt}assistantfinalFused.\n\n{final}"
)
MAGISTRAL = """\
[THINK]Let me think. The user asks for less memory traffic.

{draft}

No, {doubt}[/THINK]I fused both loops.

{final}"""
GLM = "\n<think>The task: fuse.\n{draft}\nHmm, {doubt}</think>\n{final}"
SEED = "<seed:think>\nGot it, let's see.\n{draft}\n{doubt}\n</seed:think>{final}"
MINIMAX = "<think>\nThe user wants a plan.\n\n{draft}\n\n{doubt}\n</think>\n\nHere it is.\n\n{final}\n"
OPEN_THINKER = (
    "<|begin_of_thought|>\n\nOkay.\n\n{draft}\n\n{doubt}\n\n<|end_of_thought|>\n\n"
    "<|begin_of_solution|>\n\n{final}\n\n<|end_of_solution|>"
)
FAMILIES = {
    "deepseek-r1": DEEPSEEK_R1,
    "qwen3": QWEN3,
    "gpt-oss": GPT_OSS,
    "gpt-oss without tokens": GPT_OSS_WITHOUT_TOKENS,
    "magistral": MAGISTRAL,
    "glm": GLM,
    "seed": SEED,
    "minimax": MINIMAX,
    "open-thinker": OPEN_THINKER,
}
DOUBT = "the order of the sum matters here, and {x} is read twice. " * 40
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


def fenced(text: str, tag: str) -> str:
    return f"```{tag}\n{text}\n```"


def said(family: str, draft: str, final: str) -> str:
    return family.replace("{draft}", draft).replace("{doubt}", DOUBT).replace("{final}", final)


def coded(family: str) -> str:
    return said(family, fenced(DRAFT_PROGRAM, "cpp"), fenced(PROGRAM, "cpp path=kernel.cpp"))


def planned(family: str) -> str:
    return said(family, fenced(DRAFT_SCRIPT, "json"), fenced(SCRIPT, "json"))


def answer(text: str) -> Answer:
    return Answer(text=text, model="m", usage=Usage(), latency_s=0.0)


def written(text: str, asked: WriteCandidate = APPLY) -> tuple[str, str]:
    event = read_answer(asked, request_for(asked), answer(text))
    assert event.answer == text
    return (event.candidate.files[0].text if event.candidate else ""), event.complaint


def read_to(ending: OutsideReasoning, text: str, size: int) -> int | None:
    """Return after how many characters a stream would be ended; None: it is read whole."""
    spare = 0
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        spare = spare + len(piece) if ending.take(piece) else 0
        if spare > ending.patience_chars:
            return start + size
    return None


@each_family
def test_a_program_is_read_from_the_answer_and_not_from_the_reasoning(family: str) -> None:
    assert written(coded(family)) == (PROGRAM, "")


@each_family
def test_a_script_is_read_from_the_answer_and_not_from_the_reasoning(family: str) -> None:
    question = Request(request_id="r1-p1", role="planner", system="", parts=("?",))
    proposed = read_proposal(question, answer(planned(family)))
    assert proposed.script is not None, proposed.complaint
    assert (proposed.script.summary, proposed.answer) == ("meant", planned(family))


@each_family
@pytest.mark.parametrize("size", [1, 9, 4000])
def test_a_stream_is_never_ended_inside_marked_reasoning(family: str, size: int) -> None:
    code = OutsideReasoning(lambda: FenceEnding(lambda text: "ksearch_run" in text))
    script = OutsideReasoning(lambda: JsonEnding(lambda text: "edits" in text))
    begun_in_the_prompt = family is DEEPSEEK_R1  # of which the endpoint knows, not the ending
    for ending, text in ((code, coded(family)), (script, planned(family))):
        rambling = text.removesuffix("<|return|>") + "\n" + "And so on. " * 400
        at = read_to(ending, rambling, size)
        assert at is not None
        assert begun_in_the_prompt or at > len(text.rstrip())


@each_family
def test_reasoning_that_is_cut_off_is_no_answer_and_says_so(family: str) -> None:
    if family is DEEPSEEK_R1:
        return  # nothing shows that it is reasoning
    cut = coded(family)[: coded(family).index("read twice")]
    text, complaint = written(cut)
    assert (text, complaint[:38]) == ("", "the answer ends inside its reasoning, ")


@pytest.mark.parametrize(
    "line",
    [
        'const char* mark = "<think>";',
        "// <think> and </think> are marks",
        "/*\n<think>\n</think>\n*/",
        'const char* marks[] = {"</think>", "[/THINK]", "<|channel|>final<|message|>"};',
    ],
)
def test_code_that_names_a_mark_survives(line: str) -> None:
    code = f"{line}\n{PROGRAM}"
    assert written(fenced(code, "cpp path=kernel.cpp")) == (code, "")
    assert written(f"<think>\nI name `</think>`.\n</think>\n{fenced(code, 'cpp path=kernel.cpp')}") == (code, "")


def test_a_script_that_names_a_mark_survives() -> None:
    script = SCRIPT.replace("meant", "after </think> comes <think>")
    question = Request(request_id="r1-p1", role="planner", system="", parts=("?",))
    for text in (script, fenced(script, "json")):
        proposed = read_proposal(question, answer(text))
        assert proposed.script is not None
        assert proposed.script.summary == "after </think> comes <think>"


def test_a_draft_whose_fence_was_left_open_does_not_hide_the_end_of_the_reasoning() -> None:
    text = f"<think>\n```cpp\nint ksearch_run() {{\n</think>\nFused.\n{fenced(PROGRAM, 'cpp path=kernel.cpp')}"
    assert written(text) == (PROGRAM, "")


def test_several_passages_of_reasoning_are_left_out_and_lines_keep_their_numbers() -> None:
    spoken = split_reasoning("<think>a\nb</think>\none\n<think>c\n</think>two")
    assert (spoken.answer, spoken.reasoning) == ("\n\none\n\ntwo", "a\nbc\n")
    assert not spoken.is_open


def test_a_decline_after_reasoning_is_a_decline() -> None:
    asked = job(mode="improve")
    text = "<think>\nHm.\n</think>\n\nNothing further: it is bound by memory."
    assert read_answer(asked, request_for(asked), answer(text)).declined == "it is bound by memory."


@pytest.mark.anyio
async def test_the_question_to_a_coder_ends_outside_of_reasoning() -> None:
    asked: list[Request] = []

    def script(request: Request) -> str:
        asked.append(request)
        return coded(QWEN3)

    await write_candidate(ScriptedModel(script), APPLY)
    (request,) = asked
    assert request.ending is not None
    draft_only = coded(QWEN3)[: coded(QWEN3).index("</think>")]
    assert not request.ending().take(draft_only)
    assert request.ending().take(coded(QWEN3) + "\n")


@given(st.lists(st.sampled_from(["<think>", "</think>", "\n", "```\n", "```cpp\n", "x", '"', "[THINK]", "[/THINK]"])))
def test_any_text_is_split_and_its_answer_holds_its_lines(pieces: list[str]) -> None:
    text = "".join(pieces)
    spoken = split_reasoning(text)
    assert spoken.answer.count("\n") == text.count("\n")
    assert len(spoken.reasoning) <= len(text)


def test_many_marks_are_read_in_time() -> None:
    for text in ("</think>\n" * 50_000, "<think>" * 50_000, "<|end|> " * 50_000, "\n" * 400_000, "<think>\n" * 50_000):
        split_reasoning(text)
        ending = OutsideReasoning(lambda: JsonEnding(lambda _: True))
        for start in range(0, len(text), 8):
            ending.take(text[start : start + 8])
