from __future__ import annotations

import pytest

from actors.llm.features import Sampling
from actors.llm.responses import ResponsesModel
from tests.actors.llm.dialects import Dialect, Responses
from tests.actors.llm.endpoint import Reply, endpoint
from tests.contracts.endpoints import IN_JSON, EndpointContract, asked, failed
from tests.contracts.models import QUESTION
from tests.contracts.streams import StreamContract

pytestmark = pytest.mark.anyio

RESPONSES = Responses()


@pytest.fixture
def dialect() -> Dialect:
    return RESPONSES


class TestContract(EndpointContract):
    pass


class TestStreams(StreamContract):
    pass


async def test_rules_go_as_instructions_and_nothing_is_kept_at_the_endpoint() -> None:
    sampling = Sampling(temperature=0.5, max_tokens=99, reasoning_effort="low")
    async with endpoint(lambda _: RESPONSES.whole("Yes.")) as server:
        model = ResponsesModel(model="small", base_url=server.url, sampling=sampling)
        await model.complete(QUESTION)
        await model.aclose()
    assert server.paths == ["/v1/responses"]
    assert server.requests == [
        {
            "model": "small",
            "instructions": "Rules.",
            "input": "A task.\n\nA question.",
            "store": False,
            "temperature": 0.5,
            "max_output_tokens": 99,
            "reasoning": {"effort": "low"},
        }
    ]


async def test_a_response_that_failed_is_an_error_that_says_why() -> None:
    body = b'{"output": [], "status": "failed", "error": {"code": "server_error", "message": "no more memory"}}'
    assert "no more memory" in str(await failed(RESPONSES, Reply(body=body)))


async def test_a_stream_that_ends_in_a_failure_is_tried_again() -> None:
    event = b'data: {"type": "response.failed", "response": {"output": [], "error": {"message": "no more memory"}}}\n\n'
    answer = await asked(RESPONSES, IN_JSON, Reply(events=(event,)), RESPONSES.whole('{"edits": []}'))
    assert answer.text == '{"edits": []}'
    assert "no more memory" in answer.faults[0].detail
