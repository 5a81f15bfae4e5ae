"""What every dialect promises of answers that are streamed, over real HTTP; test files give the fixture `dialect`."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from actors.llm.answer_text import UNPROVEN_CHARS, FenceEnding
from actors.llm.base import Request
from actors.llm.features import Features
from tests.actors.llm.dialects import Dialect
from tests.actors.llm.endpoint import Reply, endpoint
from tests.contracts.endpoints import IN_JSON, USAGE, asked, failed
from tests.contracts.models import QUESTION

IN_CODE = msgspec.structs.replace(QUESTION, role="coder", ending=lambda: FenceEnding(lambda _: True))


class StreamContract:
    """Promises of `actors.llm.endpoint.EndpointModel` for questions that say when their answer is whole."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture(autouse=True)
    def packages_are_loaded(self, dialect: Dialect) -> None:
        """Make one client without an event loop: a process's first one imports packages, which reads files."""
        dialect.model(model="none")

    async def test_a_streamed_answer_is_the_same_as_one_in_one_piece(self, dialect: Dialect) -> None:
        pieces = ("Well:\n", '```json\n{"edits"', ": []}\n``", "`\n")
        answer = await asked(dialect, IN_JSON, Reply(events=dialect.events(pieces)))
        assert (answer.text, answer.model, answer.finish_reason) == ("".join(pieces), "small-1", "stop")
        assert answer.usage == USAGE

    async def test_an_endpoint_that_does_not_stream_is_taken_as_it_is(self, dialect: Dialect) -> None:
        answer = await asked(dialect, IN_JSON, dialect.whole('{"edits": []}'))
        assert (answer.text, answer.finish_reason, answer.usage) == ('{"edits": []}', "stop", USAGE)

    @pytest.mark.parametrize(
        ("question", "needed"), [(IN_JSON, '{"edits": [{"a": "}"}]}'), (IN_CODE, "Code:\n```cpp\nint main;\n```\n")]
    )
    async def test_a_rambling_answer_is_ended_once_it_is_whole(
        self, dialect: Dialect, question: Request, needed: str
    ) -> None:
        events = dialect.events(tuple(needed), is_over=False)
        rambling = dialect.events(("And so on and on. " * 50,), is_over=False)[-1]
        async with endpoint(lambda _: Reply(events=events, goes_on_with=rambling)) as server:
            model = dialect.model(model="small", base_url=server.url)
            first = await model.complete(question)
            answer = await model.complete(question)
            with anyio.fail_after(10):
                await server.left_early.wait()
            await model.aclose()
        assert UNPROVEN_CHARS < len(first.text) - len(needed) < UNPROVEN_CHARS + 2000
        assert answer.text.startswith(needed)
        assert len(answer.text) < len(needed) + 2500
        assert answer.finish_reason == "ended_early"
        assert (answer.usage.calls, answer.usage.estimated_calls) == (1, 1)
        assert answer.usage.completion_tokens == len(answer.text) // 4

    async def test_no_answer_is_ended_inside_reasoning_that_began_in_the_prompt(self, dialect: Dialect) -> None:
        draft, doubt = 'Hm, {"edits": ["a draft"]}\n', "Wait, that is not it. " * 400
        pieces = (draft, doubt, "\n</think>\n\n", '{"edits": []}')
        events = dialect.events(tuple("".join(pieces)[at : at + 50] for at in range(0, 9000, 50)))
        async with endpoint(lambda _: Reply(events=events)) as server:
            model = dialect.model(model="small", base_url=server.url)
            answers = [await model.complete(IN_JSON) for _ in range(3)]
            await model.aclose()
        assert [answer.finish_reason for answer in answers] == ["stop"] * 3
        assert all(answer.text == "".join(pieces) for answer in answers)

    async def test_an_answer_that_is_not_whole_is_read_on(self, dialect: Dialect) -> None:
        pieces = ('{"edits": ', *["[1] " * 100] * 20, "]}")
        answer = await asked(dialect, IN_JSON, Reply(events=dialect.events(pieces)))
        assert answer.text == "".join(pieces)

    @pytest.mark.parametrize("cut", [True, False])
    async def test_a_stream_that_breaks_off_is_a_fault_and_no_shorter_answer(self, dialect: Dialect, cut: bool) -> None:
        half = dialect.events(('{"edits": [', '{"op": "insert"'), is_over=False)
        whole = Reply(events=dialect.events(('{"edits": []}',)))
        answer = await asked(dialect, IN_JSON, Reply(events=half, cut=cut), whole)
        assert answer.text == '{"edits": []}'
        assert [fault.kind for fault in answer.faults] == ["broken_off"]

    async def test_a_whole_answer_whose_stream_breaks_off_soon_after_is_asked_for_again(self, dialect: Dialect) -> None:
        almost = dialect.events(('{"edits": [1]}',), is_over=False)
        answer = await asked(dialect, IN_JSON, Reply(events=almost, cut=True), dialect.whole('{"edits": []}'))
        assert (answer.text, len(answer.faults)) == ('{"edits": []}', 1)

    async def test_an_endpoint_that_fails_while_it_streams_is_tried_again(self, dialect: Dialect) -> None:
        events = (*dialect.events(("{",), is_over=False), dialect.trouble())
        answer = await asked(dialect, IN_JSON, Reply(events=events), dialect.whole('{"edits": []}'))
        assert answer.text == '{"edits": []}'
        assert "out of memory" in answer.faults[0].detail

    async def test_a_stream_without_an_end_is_given_up_when_its_answer_is_too_long(self, dialect: Dialect) -> None:
        again = dialect.events((20_000 * "and so on ",), is_over=False)[-1]
        error = await failed(dialect, Reply(events=(again,), goes_on_with=again), question=IN_JSON)
        assert "sent too much, more than 1 million characters" in str(error)
        assert [fault.kind for fault in error.faults] == ["too_long"]

    async def test_a_stream_of_something_else_is_an_error_that_says_so(self, dialect: Dialect) -> None:
        error = await failed(dialect, Reply(events=(b"data: hello\n\n",)), question=IN_JSON)
        assert "did not answer in the format of" in str(error)
        assert [fault.kind for fault in error.faults] == ["malformed"]

    async def test_answers_are_streamed_only_where_that_is_of_use(self, dialect: Dialect) -> None:
        async with endpoint(lambda _: dialect.whole("Yes.")) as server:
            model = dialect.model(model="small", base_url=server.url)
            other = dialect.model(model="small", base_url=server.url, features=Features(streams=False))
            await model.complete(QUESTION)
            await model.complete(IN_JSON)
            await other.complete(IN_JSON)
            await model.aclose()
            await other.aclose()
        assert [request.get("stream") for request in server.requests] == [None, True, None]
