"""What every model dialect promises, as tests; a dialect's test file is a fixture and an empty subclass."""

from __future__ import annotations

import anyio
import pytest

from actors.llm.base import Answer, Model, Request

QUESTION = Request(request_id="r1-p1", role="planner", system="Rules.", parts=("A task.", "A question."))


class ModelContract:
    """Promises of `actors.llm.base.Model`. Needs the fixture `model`: a dialect that answers."""

    @pytest.mark.anyio
    async def test_an_answer_says_what_it_cost(self, model: Model) -> None:
        answer = await model.complete(QUESTION)
        assert answer.text
        assert answer.model
        assert answer.usage.calls == 1
        assert answer.usage.prompt_tokens > 0
        assert answer.usage.completion_tokens > 0
        assert answer.latency_s >= 0

    @pytest.mark.anyio
    async def test_the_same_question_may_be_asked_again(self, model: Model) -> None:
        first = await model.complete(QUESTION)
        again = await model.complete(QUESTION)
        assert first.text == again.text

    @pytest.mark.anyio
    async def test_many_questions_may_be_asked_at_once(self, model: Model) -> None:
        answers: list[Answer] = []

        async def ask() -> None:
            answers.append(await model.complete(QUESTION))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert len(answers) == 20

    @pytest.mark.anyio
    async def test_a_cancelled_question_leaves_the_model_usable(self, model: Model) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.complete, QUESTION)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (await model.complete(QUESTION)).text

    @pytest.mark.anyio
    async def test_closing_twice_is_harmless(self, model: Model) -> None:
        await model.aclose()
        await model.aclose()
