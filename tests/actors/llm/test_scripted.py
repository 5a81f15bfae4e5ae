from __future__ import annotations

import pytest

from actors.llm.base import ScriptedModel
from messages.base import ModelError
from tests.contracts.models import QUESTION, ModelContract


class TestContract(ModelContract):
    @pytest.fixture
    def model(self) -> ScriptedModel:
        return ScriptedModel(lambda request: f"Answer to {request.request_id}")


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_an_answer_takes_as_long_as_was_asked_for() -> None:
    answer = await ScriptedModel(lambda _: "Yes.", latency_s=60.0).complete(QUESTION)
    assert answer.latency_s == pytest.approx(60.0)


@pytest.mark.anyio
async def test_an_exception_among_the_answers_is_raised() -> None:
    with pytest.raises(ModelError, match="busy"):
        await ScriptedModel(lambda _: ModelError("busy")).complete(QUESTION)
