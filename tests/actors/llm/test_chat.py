from __future__ import annotations

import pytest

from actors.llm.chat import ChatModel
from actors.llm.features import Features, Sampling
from tests.actors.llm.dialects import Chat, Dialect
from tests.actors.llm.endpoint import Reply, endpoint, failure
from tests.contracts.endpoints import IN_JSON, EndpointContract, failed
from tests.contracts.models import QUESTION
from tests.contracts.streams import StreamContract

pytestmark = pytest.mark.anyio

CHAT = Chat()


@pytest.fixture
def dialect() -> Dialect:
    return CHAT


class TestContract(EndpointContract):
    pass


class TestStreams(StreamContract):
    pass


async def test_rules_go_as_system_message_and_parts_as_one_user_message() -> None:
    sampling = Sampling(temperature=0.5, max_tokens=99, reasoning_effort="low", seed=7)
    async with endpoint(lambda _: CHAT.whole("Yes.")) as server:
        model = ChatModel(model="small", base_url=server.url, sampling=sampling)
        await model.complete(QUESTION)
        await model.aclose()
    (request,) = server.requests
    assert server.paths == ["/v1/chat/completions"]
    assert isinstance(request.pop("seed"), int)
    assert request == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Rules."},
            {"role": "user", "content": "A task.\n\nA question."},
        ],
        "temperature": 0.5,
        "max_completion_tokens": 99,
        "reasoning_effort": "low",
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [(b'{"choices": []}', "$.choices"), (b'{"choices": [{"message": null}]}', "$.choices[0].message")],
)
async def test_an_answer_without_a_choice_is_none(body: bytes, said: str) -> None:
    assert said in str(await failed(CHAT, Reply(body=body)))


async def test_an_endpoint_that_knows_the_old_name_of_the_limit_gets_it() -> None:
    refusal = failure(400, "Unrecognized request argument supplied: max_completion_tokens")
    async with endpoint(lambda number: CHAT.whole("Yes.") if number else refusal) as server:
        model = ChatModel(model="small", base_url=server.url, sampling=Sampling(max_tokens=9))
        answer = await model.complete(QUESTION)
        await model.aclose()
    assert [request.get("max_tokens") for request in server.requests] == [None, 9]
    assert [fault.kind for fault in answer.faults] == ["refused"]


async def test_an_endpoint_that_passes_over_the_new_name_of_the_limit_gets_the_old_one() -> None:
    async with endpoint(lambda _: CHAT.whole("Thirty tokens.")) as server:
        model = ChatModel(model="small", base_url=server.url, sampling=Sampling(max_tokens=29))
        for _ in range(3):
            await model.complete(QUESTION)
        await model.aclose()
    assert [request.get("max_completion_tokens") for request in server.requests] == [29, None, None]
    assert [request.get("max_tokens") for request in server.requests] == [None, 29, 29]


@pytest.mark.parametrize(("words", "name"), [(400, "max_tokens"), (40, "max_completion_tokens")])
async def test_an_endpoint_that_does_not_count_is_judged_by_the_length_of_its_text(words: int, name: str) -> None:
    async with endpoint(lambda _: CHAT.whole("word " * words, usage=False)) as server:
        model = ChatModel(model="small", base_url=server.url, sampling=Sampling(max_tokens=40))
        await model.complete(QUESTION)
        await model.aclose()
    assert model.features.max_tokens_name == name


async def test_an_answer_within_its_limit_says_nothing_of_the_limits_name() -> None:
    async with endpoint(lambda _: CHAT.whole("Thirty tokens.")) as server:
        model = ChatModel(model="small", base_url=server.url, sampling=Sampling(max_tokens=30))
        await model.complete(QUESTION)
        await model.aclose()
    assert model.features == Features()


async def test_an_endpoint_that_cannot_count_while_it_streams_is_not_asked_to() -> None:
    refusal = failure(400, "stream_options: extra inputs are not permitted")
    async with endpoint(lambda number: CHAT.whole("Yes.") if number else refusal) as server:
        model = ChatModel(model="small", base_url=server.url)
        await model.complete(IN_JSON)
        await model.aclose()
    assert [request.get("stream_options") for request in server.requests] == [{"include_usage": True}, None]
    assert model.features == Features(usage_in_stream=False)


async def test_a_stream_without_a_last_mark_is_over_with_its_finish_reason() -> None:
    *events, _ = CHAT.events(('{"edits": []}',))
    async with endpoint(lambda _: Reply(events=tuple(events))) as server:
        model = ChatModel(model="small", base_url=server.url)
        answer = await model.complete(IN_JSON)
        await model.aclose()
    assert (answer.text, answer.faults) == ('{"edits": []}', ())
