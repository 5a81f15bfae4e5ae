from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
import msgspec
import pytest

from actors.llm.base import Answer
from actors.llm.chat import ChatModel, Sampling
from messages.base import Usage
from messages.errors import ModelError
from tests.actors.llm.endpoint import Reply, completion, endpoint, failure
from tests.contracts.models import QUESTION, ModelContract

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-key"
AT_ONCE = "Retry-After-Ms: 1"


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


class TestContract(ModelContract):
    @pytest.fixture
    async def model(self) -> AsyncIterator[ChatModel]:
        async with endpoint(lambda _: completion("Yes.")) as server:
            model = ChatModel(model="small", base_url=server.url, concurrency=4)
            yield model
            await model.aclose()


async def failed(reply: Reply, *, timeout_s: float = 20.0) -> ModelError:
    async with endpoint(lambda _: reply) as server:
        model = ChatModel(model="small", base_url=server.url, api_key=KEY, max_retries=1, timeout_s=timeout_s)
        with pytest.raises(ModelError) as caught:
            await model.complete(QUESTION)
        await model.aclose()
        text = str(caught.value)
        assert KEY not in text
        assert "'small'" in text
        assert server.url in text
    return caught.value


async def test_rules_go_as_system_message_and_parts_as_one_user_message() -> None:
    async with endpoint(lambda _: completion("Yes.")) as server:
        model = ChatModel(model="small", base_url=server.url, sampling=Sampling(temperature=0.5, max_tokens=99))
        answer = await model.complete(QUESTION)
        await model.aclose()
    assert server.paths == ["/v1/chat/completions"]
    assert server.requests == [
        {
            "model": "small",
            "messages": [
                {"role": "system", "content": "Rules."},
                {"role": "user", "content": "A task.\n\nA question."},
            ],
            "temperature": 0.5,
            "max_completion_tokens": 99,
        }
    ]
    assert answer.text == "Yes."
    assert answer.model == "small-1"
    assert answer.usage == Usage(calls=1, prompt_tokens=120, cached_tokens=100, completion_tokens=30)


async def test_usage_is_estimated_where_the_endpoint_reports_none() -> None:
    async with endpoint(lambda _: completion("Yes, of course.", usage=None)) as server:
        model = ChatModel(model="small", base_url=server.url)
        answer = await model.complete(QUESTION)
        await model.aclose()
    assert answer.usage.completion_tokens == 3


async def test_a_cut_off_answer_says_so() -> None:
    choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "Ye"}}
    async with endpoint(lambda _: completion("", choices=[choice])) as server:
        model = ChatModel(model="small", base_url=server.url)
        answer = await model.complete(QUESTION)
        await model.aclose()
    assert (answer.text, answer.finish_reason) == ("Ye", "length")


async def test_text_that_cannot_be_stored_as_utf_8_is_replaced() -> None:
    body = completion("x").body.replace(b'"x"', b'"a\\ud800b"')
    async with endpoint(lambda _: Reply(body=body)) as server:
        model = ChatModel(model="small", base_url=server.url)
        answer = await model.complete(QUESTION)
        await model.aclose()
    assert answer.text == "a?b"


@pytest.mark.parametrize("first", [failure(429, "slow down", AT_ONCE), failure(500, "oops", AT_ONCE)])
async def test_passing_failures_are_tried_again(first: Reply) -> None:
    async with endpoint(lambda number: completion("Yes.") if number else first) as server:
        model = ChatModel(model="small", base_url=server.url, max_retries=2)
        answer = await model.complete(QUESTION)
        await model.aclose()
    assert answer.text == "Yes."
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "refused the key"), (403, "refused the key"), (404, "the model 'small'")],
)
async def test_what_only_the_user_can_help_is_permanent_and_says_what_to_do(status: int, said: str) -> None:
    error = await failed(failure(status, f"no luck with {KEY}"))
    assert error.permanent
    assert said in str(error)
    assert f"HTTP {status}" in str(error)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_question_that_is_refused_has_an_empty_answer_that_says_so(status: int) -> None:
    async with endpoint(lambda number: completion("Yes.") if number else failure(status, "too long")) as server:
        model = ChatModel(model="small", base_url=server.url)
        refused, answered = await model.complete(QUESTION), await model.complete(QUESTION)
        await model.aclose()
    assert (refused.text, refused.usage) == ("", Usage())
    assert refused.finish_reason == f"refused: HTTP {status}: too long"
    assert [fault.status for fault in refused.faults] == [status]
    assert answered.text == "Yes."


async def test_an_endpoint_that_refuses_every_question_is_given_up_soon() -> None:
    async with endpoint(lambda _: failure(400, "no such parameter")) as server:
        model = ChatModel(model="small", base_url=server.url)
        for _ in range(2):
            assert (await model.complete(QUESTION)).text == ""
        with pytest.raises(ModelError, match="refused the request") as caught:
            await model.complete(QUESTION)
        await model.aclose()
    assert caught.value.permanent
    assert "no such parameter" in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (failure(429, "slow down", AT_ONCE), "rate limit"),
        (failure(500, "oops", AT_ONCE), "HTTP 500"),
        (Reply(drops=True), "broke the connection off"),
        (Reply(body=b"<html>hello</html>"), "not answer in the format"),
        (Reply(body=b'{"hello": 1}'), "missing required field `choices`"),
        (Reply(body=b'{"choices": []}'), "$.choices"),
        (Reply(body=b'{"choices": [{"message": null}]}'), "$.choices[0].message"),
        (Reply(body=b"[1, 2]"), "Expected `object`"),
        (Reply(body=b'{"choices": [{"message": {"content": "\xff"}}]}'), "not answer in the format"),
    ],
)
async def test_what_may_pass_is_not_permanent(reply: Reply, said: str) -> None:
    error = await failed(reply)
    assert not error.permanent
    assert said in str(error)


async def test_an_endpoint_that_hangs_is_given_up_after_the_time_out() -> None:
    error = await failed(Reply(hangs=True), timeout_s=0.2)
    assert not error.permanent
    assert "within 0.2 s" in str(error)


async def test_nobody_listening_is_an_error_that_names_the_address() -> None:
    async with endpoint(lambda _: completion("Yes.")) as server:
        url = server.url
    model = ChatModel(model="small", base_url=url, max_retries=0)
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        await model.complete(QUESTION)
    await model.aclose()
    assert url in str(caught.value)


async def test_an_answer_without_an_end_is_given_up_when_it_is_too_long() -> None:
    error = await failed(Reply(endless=True))
    assert not error.permanent
    assert "more than 4 MiB without an end" in str(error)
    assert [fault.kind for fault in error.faults] == ["too_long"]


async def test_an_answer_tells_of_the_tries_that_failed_before_it() -> None:
    replies = [failure(429, f"slow down, {KEY}", "Retry-After: 0.01"), Reply(drops=True), failure(503, "busy", AT_ONCE)]
    async with endpoint(lambda number: [*replies, completion("Yes.")][number]) as server:
        model = ChatModel(model="small", base_url=server.url, api_key=KEY)
        answer = await model.complete(QUESTION)
        await model.aclose()
    assert [(fault.kind, fault.status) for fault in answer.faults] == [
        ("rate_limited", 429), ("broken_off", None), ("server_error", 503)
    ]  # fmt: skip
    assert answer.faults[0].retry_after_s == 0.01
    assert answer.faults[0].detail == "slow down, ***"


async def test_the_tries_of_a_call_that_was_given_up_are_told_when_its_job_comes_again() -> None:
    replies = [*[failure(500, "oops", AT_ONCE)] * 2, failure(429, "slow down", AT_ONCE), completion("Yes.")]
    async with endpoint(lambda number: replies[min(number, 3)]) as server:
        model = ChatModel(model="small", base_url=server.url, max_retries=1)
        with pytest.raises(ModelError) as caught:
            await model.complete(QUESTION)
        answer = await model.complete(QUESTION)
        last = await model.complete(QUESTION)
        await model.aclose()
    assert "2 tries failed: 2 server_error (HTTP 500)" in str(caught.value)
    assert [fault.status for fault in caught.value.faults] == [500, 500]
    assert [fault.status for fault in answer.faults] == [500, 500, 429]
    assert last.faults == ()


async def test_calls_at_once_tell_of_their_own_tries_only() -> None:
    def reply(number: int) -> Reply:
        return failure(500, "oops", AT_ONCE) if number == 0 else completion("Yes.")

    async with endpoint(reply) as server:
        model = ChatModel(model="small", base_url=server.url)
        answers: list[Answer] = []

        async def ask(number: int) -> None:
            answers.append(await model.complete(msgspec.structs.replace(QUESTION, request_id=f"r1-w{number}")))

        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(ask, number)
        await model.aclose()
    assert sorted(len(answer.faults) for answer in answers) == [0, 0, 0, 1]


async def test_the_same_question_is_recognisable_and_another_under_its_id_is_not_the_same() -> None:
    other = msgspec.structs.replace(QUESTION, parts=("A task.", "Another question."))
    async with endpoint(lambda number: failure(500, "oops", AT_ONCE) if number == 0 else completion("Yes.")) as server:
        model = ChatModel(model="small", base_url=server.url)
        for question in (QUESTION, QUESTION, other):
            await model.complete(question)
        await model.aclose()
    keys = [header(head, "Idempotency-Key") for head in server.heads]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
    assert {header(head, "X-Client-Request-Id") for head in server.heads} == {QUESTION.request_id}


def header(head: str, name: str) -> str:
    (value,) = (line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith(f"{name.lower()}:"))
    return value


async def test_an_address_where_nobody_ever_answered_is_given_up_soon_and_for_good() -> None:
    async with endpoint(lambda _: completion("Yes.")) as server:
        url = server.url
    model = ChatModel(model="small", base_url=url, max_retries=50)
    with anyio.fail_after(30), pytest.raises(ModelError, match=r"Connection refused.*check the address") as caught:
        await model.complete(QUESTION)
    await model.aclose()
    assert caught.value.permanent
    assert {fault.kind for fault in caught.value.faults} == {"unreachable"}
    assert len(caught.value.faults) < 10


async def test_an_endpoint_that_answered_before_may_be_away_for_a_while() -> None:
    async with endpoint(lambda _: completion("Yes.")) as server:
        url = server.url
        model = ChatModel(model="small", base_url=url, max_retries=0)
        await model.complete(QUESTION)
    with pytest.raises(ModelError) as caught:
        await model.complete(QUESTION)
    await model.aclose()
    assert not caught.value.permanent


async def test_no_more_calls_are_in_flight_than_allowed() -> None:
    release = anyio.Event()
    held = Reply(body=completion("Yes.").body, waits_for=release)
    async with endpoint(lambda _: held) as busy, endpoint(lambda _: completion("Yes.")) as free:
        model, other = (
            ChatModel(model="small", base_url=busy.url, concurrency=3),
            ChatModel(model="x", base_url=free.url),
        )
        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(model.complete, QUESTION)
            while len(busy.requests) < 3:
                await other.complete(QUESTION)
            for _ in range(5):  # round trips in which a fourth question would have arrived
                await other.complete(QUESTION)
            assert len(busy.requests) == 3
            release.set()
        await model.aclose()
        await other.aclose()
    assert len(busy.requests) == 12


def test_the_replies_of_this_file_are_what_endpoints_send() -> None:
    assert json.loads(completion("x").body)["choices"][0]["message"]["content"] == "x"
