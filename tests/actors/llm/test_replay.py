from __future__ import annotations

import msgspec
import pytest

from actors.llm.base import Request, ScriptedModel, rules_digest
from actors.llm.replay import Recording, ReplayModel
from messages.base import ModelError, Usage
from messages.events import CandidateWritten, EditsProposed
from tests.contracts.models import QUESTION, ModelContract

pytestmark = pytest.mark.anyio

CODER = Request(
    request_id="r1-w1",
    role="coder",
    system="Rules.",
    parts=("The task.", "# Action n1: Fuse\n\nDo it.", "# Base\n\nNone."),
)


def proposed(question: Request = QUESTION, *, answer: str = "{}", rules: str | None = None) -> EditsProposed:
    return EditsProposed(
        job_id=question.request_id,
        script=None,
        prompt=question.prompt,
        rules_digest=rules_digest(question.system) if rules is None else rules,
        answer=answer,
        model="small",
        usage=Usage(calls=1, prompt_tokens=12, completion_tokens=3),
        latency_s=1.5,
        finish_reason="length",
    )


def written(question: Request = CODER, *, answer: str = "code") -> CandidateWritten:
    return CandidateWritten(
        job_id=question.request_id,
        branch_id="b1",
        candidate=None,
        prompt=f"{question.system}\n\n{question.prompt}",
        answer=answer,
        model="small",
        usage=Usage(calls=1, prompt_tokens=12, completion_tokens=3),
        latency_s=1.5,
    )


class TestContract(ModelContract):
    @pytest.fixture
    def model(self) -> ReplayModel:
        return ReplayModel(Recording([proposed()]))


async def test_an_answer_is_given_as_it_was_recorded() -> None:
    answer = await ReplayModel(Recording([proposed(answer="hm")])).complete(QUESTION)
    assert (answer.text, answer.model, answer.finish_reason, answer.latency_s) == ("hm", "small", "length", 1.5)
    assert answer.usage == Usage(calls=1, prompt_tokens=12, completion_tokens=3)


async def test_a_question_of_another_run_is_known_by_its_text() -> None:
    model = ReplayModel(Recording([written()]))
    assert (await model.complete(msgspec.structs.replace(CODER, request_id="other-run-w9"))).text == "code"


async def test_samples_of_one_question_get_each_answer_once_and_ids_say_which() -> None:
    second = msgspec.structs.replace(CODER, request_id="r1-w2")
    third = msgspec.structs.replace(CODER, request_id="r1-w3")
    model = ReplayModel(Recording([written(answer="1"), written(second, answer="2"), written(third, answer="3")]))
    texts = [
        (await model.complete(msgspec.structs.replace(CODER, request_id=request_id))).text
        for request_id in ("r2-w2", "r2-w8", "r2-w9", "r2-w2")
    ]
    assert texts == ["2", "1", "3", "2"]


async def test_a_question_that_was_not_recorded_is_an_error_that_says_which_part_changed() -> None:
    asked = msgspec.structs.replace(CODER, parts=("The task.", "# Action n1: Fuse\n\nDo it now.", "# Base\n\nNone."))
    with pytest.raises(ModelError, match="changed against r1-w1: Action n1: Fuse") as caught:
        await ReplayModel(Recording([written()])).complete(asked)
    assert caught.value.permanent
    assert "recorded 'Do it.', now 'Do it now.'" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"system": "Other rules."}, ("rules",)),
        ({"parts": ("Another task.", *CODER.parts[1:])}, ("task",)),
        ({"parts": (*CODER.parts[:2], "# Base\n\nSome.")}, ("Base",)),
        ({"parts": ("Another task.", CODER.parts[1], "# Base\n\nSome.")}, ("task", "Base")),
        ({"parts": CODER.parts[:2]}, ("which parts there are",)),
    ],
)
def test_what_changed_is_named_part_by_part(changes: dict[str, object], parts: tuple[str, ...]) -> None:
    asked = msgspec.structs.replace(CODER, **changes)
    recording = Recording([written()])
    assert recording.find(asked) is None
    assert recording.changes(asked).parts == parts


def test_changed_rules_of_the_planner_are_a_miss_and_those_of_older_journals_are_not_known() -> None:
    asked = msgspec.structs.replace(QUESTION, system="Other rules.")
    assert Recording([proposed()]).changes(asked).parts == ("rules",)
    assert Recording([proposed(rules="")]).find(asked) is not None


def test_a_question_at_another_place_is_compared_with_the_most_similar_one() -> None:
    near = msgspec.structs.replace(CODER, request_id="r1-w2", parts=("The task.", "# Action n2: Split"))
    asked = msgspec.structs.replace(CODER, request_id="r2-w7", parts=("The task.", "# Action n2: Split it"))
    assert Recording([written(), written(near)]).changes(asked).recorded_id == "r1-w2"


def test_a_recording_without_such_questions_says_so() -> None:
    assert Recording([written()]).changes(QUESTION).words == "the recorded run has no question like it"


async def test_what_was_not_recorded_is_asked_of_the_other_model_if_there_is_one() -> None:
    model = ReplayModel(Recording([proposed()]), beyond=ScriptedModel(lambda _: "asked"))
    assert (await model.complete(CODER)).text == "asked"
    assert (await model.complete(QUESTION)).text == "{}"
    assert (model.hits, model.misses) == (1, 1)
    await model.aclose()
