"""What every dialect of OpenAI-compatible endpoints promises, over real HTTP; test files give the fixture `dialect`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import msgspec
import pytest

from actors.llm.answer_text import JsonEnding
from actors.llm.base import Answer, AnswerSchema, Request
from actors.llm.endpoint import EndpointModel
from actors.llm.features import Features
from messages.base import ModelError, Usage
from tests.actors.llm.dialects import Dialect
from tests.actors.llm.endpoint import Reply, endpoint, failure
from tests.contracts.models import QUESTION, ModelContract

KEY = "sk-very-secret-key"
AT_ONCE = "Retry-After-Ms: 1"
USAGE = Usage(calls=1, prompt_tokens=120, cached_tokens=100, completion_tokens=30, reasoning_tokens=8)
SCHEMA = AnswerSchema(name="answer", schema={"type": "object", "properties": {}, "additionalProperties": False})
IN_JSON = msgspec.structs.replace(QUESTION, ending=lambda: JsonEnding(lambda _: True), schema=SCHEMA)


async def failed(
    dialect: Dialect, reply: Reply, *, timeout_s: float = 20.0, question: Request = QUESTION
) -> ModelError:
    async with endpoint(lambda _: reply) as server:
        model = dialect.model(model="small", base_url=server.url, api_key=KEY, max_retries=1, timeout_s=timeout_s)
        with pytest.raises(ModelError) as caught:
            await model.complete(question)
        await model.aclose()
        text = str(caught.value)
        assert KEY not in text
        assert "'small'" in text
        assert server.url in text
    return caught.value


def header(head: str, name: str) -> str:
    (value,) = (line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith(f"{name.lower()}:"))
    return value


async def asked(dialect: Dialect, question: Request, *replies: Reply, features: Features | None = None) -> Answer:
    """Ask once; the last reply is given again and again."""
    async with endpoint(lambda number: replies[min(number, len(replies) - 1)]) as server:
        model = dialect.model(model="small", base_url=server.url, features=features)
        answer = await model.complete(question)
        await model.aclose()
    return answer


class EndpointContract(ModelContract):
    """Promises of `actors.llm.endpoint.EndpointModel`. Needs the fixture `dialect`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture(autouse=True)
    def packages_are_loaded(self, dialect: Dialect) -> None:
        """Make one client without an event loop: a process's first one imports packages, which reads files."""
        dialect.model(model="none")

    @pytest.fixture
    async def model(self, dialect: Dialect) -> AsyncIterator[EndpointModel]:
        """See `ModelContract`."""
        async with endpoint(lambda _: dialect.whole("Yes.")) as server:
            model = dialect.model(model="small", base_url=server.url, concurrency=4)
            yield model
            await model.aclose()

    async def test_an_answer_tells_what_it_cost_as_the_endpoint_counted(self, dialect: Dialect) -> None:
        answer = await asked(dialect, QUESTION, dialect.whole("Yes."))
        assert (answer.text, answer.model, answer.finish_reason) == ("Yes.", "small-1", "stop")
        assert answer.usage == USAGE

    async def test_usage_is_estimated_where_the_endpoint_reports_none(self, dialect: Dialect) -> None:
        answer = await asked(dialect, QUESTION, dialect.whole("Yes, of course.", usage=False))
        assert (answer.usage.completion_tokens, answer.usage.estimated_calls) == (3, 1)

    async def test_a_cut_off_answer_says_so(self, dialect: Dialect) -> None:
        answer = await asked(dialect, QUESTION, dialect.whole("Ye", finish_reason="length"))
        assert (answer.text, answer.finish_reason) == ("Ye", "length")

    async def test_text_that_cannot_be_stored_as_utf_8_is_replaced(self, dialect: Dialect) -> None:
        body = dialect.whole("x").body.replace(b'"x"', b'"a\\ud800b"')
        assert (await asked(dialect, QUESTION, Reply(body=body))).text == "a?b"

    @pytest.mark.parametrize(
        ("reply", "said"),
        [
            (failure(429, "slow down", AT_ONCE), "rate limit"),
            (failure(500, "oops", AT_ONCE), "HTTP 500"),
            (Reply(drops=True), "broke the connection off"),
            (Reply(body=b"<html>hello</html>"), "not answer in the format"),
            (Reply(body=b'{"hello": 1}'), "missing required field"),
            (Reply(body=b"[1, 2]"), "Expected `object`"),
            (Reply(body=b'{"choices": [{"message": {"content": "\xff"}}]}'), "not answer in the format"),
        ],
    )
    async def test_what_may_pass_is_not_permanent(self, dialect: Dialect, reply: Reply, said: str) -> None:
        error = await failed(dialect, reply)
        assert not error.permanent
        assert said in str(error)

    async def test_a_schema_is_sent_only_to_endpoints_that_are_known_to_take_it(self, dialect: Dialect) -> None:
        async with endpoint(lambda _: dialect.whole('{"edits": []}')) as server:
            for features in (Features(), Features(structured=True)):
                model = dialect.model(model="small", base_url=server.url, features=features)
                await model.complete(IN_JSON)
                await model.aclose()
        plain, structured = (str(request) for request in server.requests)
        assert "json_schema" not in plain
        assert "'type': 'json_schema'" in structured
        assert "'strict': True" in structured

    async def test_an_endpoint_that_refuses_a_schema_is_asked_without_one_from_then_on(self, dialect: Dialect) -> None:
        replies = [failure(400, "unknown argument"), *[dialect.whole('{"edits": []}')] * 2]
        async with endpoint(lambda number: replies[number]) as server:
            model = dialect.model(model="small", base_url=server.url, features=Features(structured=True))
            first, second = await model.complete(IN_JSON), await model.complete(IN_JSON)
            await model.aclose()
        assert (first.text, second.text) == ('{"edits": []}', '{"edits": []}')
        assert ["json_schema" in str(request) for request in server.requests] == [True, False, False]
        assert [fault.words for fault in first.faults] == ["refused (HTTP 400)"]
        assert second.faults == ()

    async def test_a_refusal_after_a_schema_has_worked_is_about_the_question(self, dialect: Dialect) -> None:
        async with endpoint(
            lambda number: failure(400, "too long") if number == 1 else dialect.whole('{"edits": []}')
        ) as server:
            model = dialect.model(model="small", base_url=server.url, features=Features(structured=True))
            await model.complete(IN_JSON)
            refused = await model.complete(IN_JSON)
            await model.complete(IN_JSON)
            await model.aclose()
        assert refused.finish_reason == "refused: HTTP 400: too long"
        assert ["json_schema" in str(request) for request in server.requests] == [True, True, True]

    async def test_an_endpoint_that_cannot_stream_is_asked_without(self, dialect: Dialect) -> None:
        def reply(number: int) -> Reply:
            return dialect.whole('{"edits": []}') if number else failure(400, "Streaming is not supported")

        async with endpoint(reply) as server:
            model = dialect.model(model="small", base_url=server.url)
            answer = await model.complete(IN_JSON)
            await model.aclose()
        assert answer.text == '{"edits": []}'
        assert [request.get("stream") for request in server.requests] == [True, None]

    async def test_a_key_is_never_in_an_answer_fault_or_error(self, dialect: Dialect) -> None:
        async with endpoint(
            lambda number: failure(429, f"no {KEY}", AT_ONCE) if number else failure(400, KEY)
        ) as server:
            model = dialect.model(model="small", base_url=server.url, api_key=KEY, max_retries=1)
            refused = await model.complete(QUESTION)
            with pytest.raises(ModelError) as caught:
                await model.complete(QUESTION)
            await model.aclose()
        for said in (refused, caught.value, caught.value.args, caught.value.faults):
            assert KEY not in repr(said)

    @pytest.mark.parametrize("first", [failure(429, "slow down", AT_ONCE), failure(500, "oops", AT_ONCE)])
    async def test_passing_failures_are_tried_again(self, dialect: Dialect, first: Reply) -> None:
        async with endpoint(lambda number: dialect.whole("Yes.") if number else first) as server:
            model = dialect.model(model="small", base_url=server.url, max_retries=2)
            answer = await model.complete(QUESTION)
            await model.aclose()
        assert answer.text == "Yes."
        assert len(server.requests) == 2

    @pytest.mark.parametrize(
        ("status", "said"),
        [(401, "refused the key"), (403, "refused the key"), (404, "the model 'small'")],
    )
    async def test_what_only_the_user_can_help_is_permanent_and_says_what_to_do(
        self, dialect: Dialect, status: int, said: str
    ) -> None:
        error = await failed(dialect, failure(status, f"no luck with {KEY}"))
        assert error.permanent
        assert said in str(error)
        assert f"HTTP {status}" in str(error)

    @pytest.mark.parametrize("status", [400, 413, 422])
    async def test_a_question_that_is_refused_has_an_empty_answer_that_says_so(
        self, dialect: Dialect, status: int
    ) -> None:
        async with endpoint(lambda number: dialect.whole("Yes.") if number else failure(status, "too long")) as server:
            model = dialect.model(model="small", base_url=server.url)
            refused, answered = await model.complete(QUESTION), await model.complete(QUESTION)
            await model.aclose()
        assert (refused.text, refused.usage) == ("", Usage())
        assert refused.finish_reason == f"refused: HTTP {status}: too long"
        assert [fault.status for fault in refused.faults] == [status]
        assert answered.text == "Yes."

    async def test_an_endpoint_that_refuses_every_question_is_given_up_soon(self, dialect: Dialect) -> None:
        async with endpoint(lambda _: failure(400, "no such parameter")) as server:
            model = dialect.model(model="small", base_url=server.url)
            for _ in range(2):
                assert (await model.complete(QUESTION)).text == ""
            with pytest.raises(ModelError, match="refused the request") as caught:
                await model.complete(QUESTION)
            await model.aclose()
        assert caught.value.permanent
        assert "no such parameter" in str(caught.value)

    async def test_an_endpoint_that_hangs_is_given_up_after_the_time_out(self, dialect: Dialect) -> None:
        error = await failed(dialect, Reply(hangs=True), timeout_s=0.2)
        assert not error.permanent
        assert "within 0.2 s" in str(error)

    async def test_nobody_listening_is_an_error_that_names_the_address(self, dialect: Dialect) -> None:
        async with endpoint(lambda _: dialect.whole("Yes.")) as server:
            url = server.url
        model = dialect.model(model="small", base_url=url, max_retries=0)
        with pytest.raises(ModelError, match="cannot be reached") as caught:
            await model.complete(QUESTION)
        await model.aclose()
        assert url in str(caught.value)

    async def test_an_answer_without_an_end_is_given_up_when_it_is_too_long(self, dialect: Dialect) -> None:
        error = await failed(dialect, Reply(endless=True))
        assert not error.permanent
        assert "more than 4 MiB without an end" in str(error)
        assert [fault.kind for fault in error.faults] == ["too_long"]

    async def test_an_answer_tells_of_the_tries_that_failed_before_it(self, dialect: Dialect) -> None:
        replies = [
            failure(429, f"slow down, {KEY}", "Retry-After: 0.01"),
            Reply(drops=True),
            failure(503, "busy", AT_ONCE),
        ]
        async with endpoint(lambda number: [*replies, dialect.whole("Yes.")][number]) as server:
            model = dialect.model(model="small", base_url=server.url, api_key=KEY)
            answer = await model.complete(QUESTION)
            await model.aclose()
        assert [(fault.kind, fault.status) for fault in answer.faults] == [
            ("rate_limited", 429), ("broken_off", None), ("server_error", 503)
        ]  # fmt: skip
        assert answer.faults[0].retry_after_s == 0.01
        assert answer.faults[0].detail == "slow down, ***"

    async def test_the_tries_of_a_call_that_was_given_up_are_told_when_its_job_comes_again(
        self, dialect: Dialect
    ) -> None:
        replies = [*[failure(500, "oops", AT_ONCE)] * 2, failure(429, "slow down", AT_ONCE), dialect.whole("Yes.")]
        async with endpoint(lambda number: replies[min(number, 3)]) as server:
            model = dialect.model(model="small", base_url=server.url, max_retries=1)
            with pytest.raises(ModelError) as caught:
                await model.complete(QUESTION)
            answer = await model.complete(QUESTION)
            last = await model.complete(QUESTION)
            await model.aclose()
        assert "2 tries failed: 2 server_error (HTTP 500)" in str(caught.value)
        assert [fault.status for fault in caught.value.faults] == [500, 500]
        assert [fault.status for fault in answer.faults] == [500, 500, 429]
        assert last.faults == ()

    async def test_calls_at_once_tell_of_their_own_tries_only(self, dialect: Dialect) -> None:
        def reply(number: int) -> Reply:
            return failure(500, "oops", AT_ONCE) if number == 0 else dialect.whole("Yes.")

        async with endpoint(reply) as server:
            model = dialect.model(model="small", base_url=server.url)
            answers: list[Answer] = []

            async def ask(number: int) -> None:
                answers.append(await model.complete(msgspec.structs.replace(QUESTION, request_id=f"r1-w{number}")))

            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(ask, number)
            await model.aclose()
        assert sorted(len(answer.faults) for answer in answers) == [0, 0, 0, 1]

    async def test_the_same_question_is_recognisable_and_another_under_its_id_is_not_the_same(
        self, dialect: Dialect
    ) -> None:
        other = msgspec.structs.replace(QUESTION, parts=("A task.", "Another question."))
        async with endpoint(
            lambda number: failure(500, "oops", AT_ONCE) if number == 0 else dialect.whole("Yes.")
        ) as server:
            model = dialect.model(model="small", base_url=server.url)
            for question in (QUESTION, QUESTION, other):
                await model.complete(question)
            await model.aclose()
        keys = [header(head, "Idempotency-Key") for head in server.heads]
        assert len(keys) == 4
        assert len(set(keys[:3])) == 1
        assert keys[3] != keys[0]
        assert {header(head, "X-Client-Request-Id") for head in server.heads} == {QUESTION.request_id}

    async def test_an_address_where_nobody_ever_answered_is_given_up_soon_and_for_good(self, dialect: Dialect) -> None:
        async with endpoint(lambda _: dialect.whole("Yes.")) as server:
            url = server.url
        model = dialect.model(model="small", base_url=url, max_retries=50)
        with anyio.fail_after(30), pytest.raises(ModelError, match=r"Connection refused.*check the address") as caught:
            await model.complete(QUESTION)
        await model.aclose()
        assert caught.value.permanent
        assert {fault.kind for fault in caught.value.faults} == {"unreachable"}
        assert len(caught.value.faults) < 10

    async def test_an_endpoint_that_answered_before_may_be_away_for_a_while(self, dialect: Dialect) -> None:
        async with endpoint(lambda _: dialect.whole("Yes.")) as server:
            url = server.url
            model = dialect.model(model="small", base_url=url, max_retries=0)
            await model.complete(QUESTION)
        with pytest.raises(ModelError) as caught:
            await model.complete(QUESTION)
        await model.aclose()
        assert not caught.value.permanent

    async def test_no_more_calls_are_in_flight_than_allowed(self, dialect: Dialect) -> None:
        release = anyio.Event()
        held = Reply(body=dialect.whole("Yes.").body, waits_for=release)
        async with endpoint(lambda _: held) as busy, endpoint(lambda _: dialect.whole("Yes.")) as free:
            model, other = (
                dialect.model(model="small", base_url=busy.url, concurrency=3),
                dialect.model(model="x", base_url=free.url),
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
