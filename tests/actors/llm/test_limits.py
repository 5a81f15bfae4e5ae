"""One endpoint is asked no faster than it may be, or bears: on a virtual clock, and over HTTP by an endpoint's 429s."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from actors.llm.base import Answer, Request, Role, ScriptedModel
from actors.llm.chat import ChatModel
from actors.llm.limits import Gate, LimitedModel, Terms
from messages.base import EndpointFault, Usage
from tests.actors.llm.endpoint import Reply, completion, endpoint, failure

pytestmark = pytest.mark.anyio

LIMITED = EndpointFault(kind="rate_limited", status=429)


def question(number: int, role: Role = "coder") -> Request:
    return Request(request_id=f"r{number}", role=role, system="Be brief.", parts=("Write.",))


class Metered:
    """A model that takes `latency_s`, uses `tokens`, and remembers when it was asked what."""

    def __init__(self, latency_s: float = 1.0, tokens: int = 100) -> None:
        self._latency_s = latency_s
        self._tokens = tokens
        self.asked: list[tuple[float, str]] = []
        self.in_flight = 0
        self.most = 0

    async def complete(self, request: Request) -> Answer:
        self.asked.append((anyio.current_time(), request.request_id))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await anyio.sleep(self._latency_s)
        self.in_flight -= 1
        usage = Usage(calls=1, prompt_tokens=self._tokens // 2, completion_tokens=self._tokens // 2)
        return Answer(text="ok", model="m", usage=usage, latency_s=self._latency_s)

    async def aclose(self) -> None:
        pass


async def ask_all(model: LimitedModel, requests: list[Request]) -> None:
    async with anyio.create_task_group() as tasks:
        for request in requests:
            tasks.start_soon(model.complete, request)


def most_within_a_minute(times: list[float]) -> int:
    return max(sum(start <= time < start + 60.0 for time in times) for start in times)


@pytest.mark.virtual_time
async def test_no_minute_has_more_requests_than_allowed() -> None:
    model = Metered()
    limited = LimitedModel(model, Gate(Terms(in_flight=64, requests_per_minute=10)))
    await ask_all(limited, [question(number) for number in range(35)])
    times = [at for at, _ in model.asked]
    assert most_within_a_minute(times) == 10
    assert max(times) == pytest.approx(180.0)  # and no more waiting than that takes


@pytest.mark.virtual_time
async def test_no_minute_has_more_tokens_than_allowed_once_the_length_of_answers_is_known() -> None:
    model = Metered(tokens=1000)
    limited = LimitedModel(model, Gate(Terms(in_flight=1, tokens_per_minute=10_000)))
    await ask_all(limited, [question(number) for number in range(40)])
    times = [at for at, _ in model.asked]
    assert most_within_a_minute(times) <= 10
    assert max(times) < 60 * 5


@pytest.mark.virtual_time
async def test_a_question_of_more_tokens_than_a_minute_has_is_asked_alone_and_not_never() -> None:
    model = Metered(tokens=9000)
    limited = LimitedModel(model, Gate(Terms(in_flight=4, tokens_per_minute=1000)))
    await ask_all(limited, [question(number) for number in range(3)])
    times = [at for at, _ in model.asked]
    assert times == pytest.approx([0.0, 60.0, 120.0])


@pytest.mark.virtual_time
async def test_the_planner_goes_before_coders_that_came_earlier() -> None:
    model = Metered(latency_s=10.0)
    limited = LimitedModel(model, Gate(Terms(in_flight=1)))
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(limited.complete, question(number))
        await anyio.sleep(5.0)
        tasks.start_soon(limited.complete, question(9, "planner"))
    assert [name for _, name in model.asked] == ["r0", "r9", "r1", "r2", "r3", "r4"]


@pytest.mark.virtual_time
async def test_two_models_at_one_endpoint_share_its_limit() -> None:
    gate, first, second = Gate(Terms(in_flight=3)), Metered(), Metered()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_all, LimitedModel(first, gate), [question(number) for number in range(6)])
        tasks.start_soon(ask_all, LimitedModel(second, gate), [question(number) for number in range(6)])
    times = sorted(at for at, _ in first.asked + second.asked)
    assert times == pytest.approx([0.0] * 3 + [1.0] * 3 + [2.0] * 3 + [3.0] * 3)


@pytest.mark.virtual_time
async def test_a_question_that_is_given_up_in_the_line_leaves_its_place() -> None:
    model = Metered(latency_s=10.0)
    limited = LimitedModel(model, Gate(Terms(in_flight=1)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(limited.complete, question(0))
        await anyio.sleep(1.0)
        with anyio.move_on_after(2.0):
            await limited.complete(question(1))
        tasks.start_soon(limited.complete, question(2))
    assert [name for _, name in model.asked] == ["r0", "r2"]


@pytest.mark.virtual_time
async def test_nothing_is_begun_before_the_endpoint_wants_to_be_asked_again() -> None:
    gate = Gate(Terms(in_flight=8))
    async with gate.admitted("coder", 10) as entry:
        await anyio.sleep(1.0)
        gate.note_fault(entry, EndpointFault(kind="rate_limited", status=429, retry_after_s=30.0))
    async with gate.admitted("planner", 10):
        assert anyio.current_time() == pytest.approx(31.0)
    assert gate.window == 4.0


@pytest.mark.virtual_time
async def test_calls_that_were_under_way_together_cut_the_window_once() -> None:
    gate = Gate(Terms(in_flight=8))

    async def be_refused() -> None:
        async with gate.admitted("coder", 10) as entry:
            await anyio.sleep(1.0)
            gate.note_fault(entry, LIMITED)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(be_refused)
    assert gate.window == 4.0


@pytest.mark.virtual_time
async def test_answers_open_the_window_again_up_to_what_was_set_and_no_further() -> None:
    gate = Gate(Terms(in_flight=4))
    async with gate.admitted("coder", 10) as entry:
        await anyio.sleep(1.0)
        gate.note_fault(entry, LIMITED)
    assert gate.window == 2.0
    widths = []
    for _ in range(20):
        async with gate.admitted("coder", 10) as entry:
            gate.note_answer(entry, 10)
        widths.append(gate.window)
    assert widths == sorted(widths)
    assert 2.0 < widths[0] < 3.0
    assert widths[-1] == 4.0


@pytest.mark.virtual_time
async def test_an_endpoint_that_bears_less_than_was_set_is_found_out() -> None:
    """It refuses whatever exceeds 3 at once; after a while nearly nothing is refused."""
    busy, refused, served = 0, 0, 0
    gate = Gate(Terms(in_flight=32))

    async def ask() -> None:
        nonlocal busy, refused, served
        async with gate.admitted("coder", 10) as entry:
            while busy >= 3:
                refused += 1
                gate.note_fault(entry, EndpointFault(kind="rate_limited", status=429, retry_after_s=1.0))
                await anyio.sleep(2.0)
            busy += 1
            await anyio.sleep(1.0)
            busy -= 1
            served += 1
            gate.note_answer(entry, 10)

    async with anyio.create_task_group() as tasks:
        for _ in range(300):
            tasks.start_soon(ask)
    assert served == 300
    assert refused < 150
    assert gate.window < 8.0


async def test_an_endpoint_that_answers_429_is_left_alone_for_as_long_as_it_asks() -> None:
    """Over HTTP: while one call is tried again by the SDK, the other calls wait, and all get their answers."""
    times: list[float] = []

    def reply(number: int) -> Reply:
        times.append(anyio.current_time())
        return failure(429, "slow down", "Retry-After: 1") if number == 0 else completion("ok")

    async with endpoint(reply) as server:
        gate = Gate(Terms(in_flight=2))
        model = LimitedModel(ChatModel(model="small", base_url=server.url), gate)
        answers: list[Answer] = []

        async def ask(number: int, role: Role) -> None:
            answers.append(await model.complete(question(number, role)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(ask, 0, "coder"))
            with anyio.fail_after(5.0):
                while gate.window == 2.0:  # noqa: ASYNC110 - the gate tells nobody of it but those who wait in line
                    await anyio.sleep(0.01)
            for number in range(1, 4):
                tasks.start_soon(partial(ask, number, "coder"))
        await model.aclose()
    assert [answer.text for answer in answers] == ["ok"] * 4
    assert len(times) == 5
    assert min(times[1:]) - times[0] >= 0.7  # the SDK takes up to a quarter off
    assert sorted(len(answer.faults) for answer in answers) == [0, 0, 0, 1]


@pytest.mark.virtual_time
async def test_failures_that_are_no_429_leave_the_window_as_it_is() -> None:
    gate = Gate(Terms(in_flight=4))
    model = LimitedModel(ScriptedModel(lambda _: "text"), gate)
    async with gate.admitted("coder", 10) as entry:
        gate.note_fault(entry, EndpointFault(kind="server_error", status=503))
    await model.complete(question(1))
    assert gate.window == 4.0
