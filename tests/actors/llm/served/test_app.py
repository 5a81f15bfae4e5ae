"""What a client sees of the served model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx
import openai
import pytest

from actors.llm.base import Request
from actors.llm.chat import ChatModel
from actors.llm.offline import OfflineModel
from actors.llm.offline.answers import role_of
from actors.llm.offline.mistakes import Mistakes
from actors.llm.served.app import FAULTS, Conduct, FaultRates
from actors.planner.prompts import plan_request
from messages.base import ModelError
from messages.facts import PlanRequested
from tests.actors.llm.offline.prompts import coder_prompt, description, write_job
from tests.actors.llm.offline.test_planning import node, search
from tests.actors.llm.served.serving import serving
from tests.contracts.models import QUESTION, ModelContract

pytestmark = pytest.mark.anyio

NAME = "offline-rules"
PLANNER = plan_request(search(), PlanRequested(job_id="r1-p1", purpose="analyse", wanted=8), description())
REVISION = plan_request(
    search(node("n1", "Fuse stages, block by block", best=2.0)),
    PlanRequested(job_id="r1-p2", purpose="revise", wanted=4),
    description(),
)
CODER = Request(
    request_id="r1-w1",
    role="coder",
    system="Rules.",
    parts=("", coder_prompt(write_job("Fuse", "Add to the plan: `fuse`."))),
)
ASKED = {"model": NAME, "messages": [{"role": "user", "content": CODER.prompt}]}


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


class TestContract(ModelContract):
    @pytest.fixture
    async def model(self) -> AsyncIterator[ChatModel]:
        async with serving() as (_, base_url):
            model = ChatModel(model=NAME, base_url=base_url)
            yield model
            await model.aclose()


@pytest.mark.parametrize("mistakes", [0.0, 1.0])
@pytest.mark.parametrize("request_", [PLANNER, REVISION, CODER], ids=["analysis", "revision", "code"])
async def test_the_answer_is_the_built_in_one(request_: Request, mistakes: float) -> None:
    built_in = await OfflineModel(seed=3, mistakes=mistakes).complete(request_)
    async with serving(seed=3, mistakes=mistakes) as (_, base_url):
        model = ChatModel(model=NAME, base_url=base_url)
        answer = await model.complete(request_)
        await model.aclose()
    assert (answer.text, answer.finish_reason) == (built_in.text, built_in.finish_reason)
    assert (answer.model, answer.usage) == (built_in.model, built_in.usage)


@pytest.mark.parametrize("request_", [PLANNER, REVISION, CODER], ids=["analysis", "revision", "code"])
def test_the_role_is_told_from_the_prompt(request_: Request) -> None:
    assert role_of(request_.prompt) == request_.role


async def test_a_streamed_answer_is_the_same_with_its_usage_at_the_end() -> None:
    async with serving() as (_, base_url):
        client = openai.AsyncOpenAI(api_key="none", base_url=base_url)
        stream = await client.chat.completions.create(
            model=NAME,
            messages=[{"role": "system", "content": CODER.system}, {"role": "user", "content": CODER.prompt}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        await client.close()
    built_in = await OfflineModel().complete(CODER)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == built_in.text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == built_in.usage.completion_tokens


async def test_the_one_model_is_listed() -> None:
    async with serving() as (_, base_url):
        client = openai.AsyncOpenAI(api_key="none", base_url=base_url)
        models = [model.id async for model in client.models.list()]
        await client.close()
    assert models == [NAME]


@pytest.mark.parametrize(
    ("model", "key", "said"), [(NAME, "sk-wrong", "refused the key"), ("nonesuch", "sk-right", "the model 'nonesuch'")]
)
async def test_a_wrong_key_and_an_unknown_model_are_refused(model: str, key: str, said: str) -> None:
    async with serving(Conduct(api_key="sk-right")) as (served, base_url):
        client = ChatModel(model=model, base_url=base_url, api_key=key)
        with pytest.raises(ModelError, match=said) as caught:
            await client.complete(QUESTION)
        await client.aclose()
    assert caught.value.permanent
    assert (served.report().requests, served.report().refused) == (1, 1)


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "offline-rules"}', b'{"model": 3, "messages": []}', b"[]"])
async def test_what_is_no_request_is_refused_with_the_reason(body: bytes) -> None:
    async with serving() as (_, base_url), httpx.AsyncClient() as client:
        response = await client.post(f"{base_url}/chat/completions", content=body)
    assert response.status_code == 400
    assert "cannot be read" in response.json()["error"]["message"]


async def test_repeated_beginnings_count_as_cached_tokens() -> None:
    longer = Request(request_id="r1-w2", role="coder", system="Rules.", parts=(CODER.prompt, "And more."))
    async with serving() as (served, base_url):
        model = ChatModel(model=NAME, base_url=base_url)
        first, second = await model.complete(CODER), await model.complete(longer)
        await model.aclose()
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens >= first.usage.prompt_tokens - 20
    assert served.report().cached_tokens == second.usage.cached_tokens


async def test_a_known_key_gets_its_answer_again_and_nothing_is_paid_for_twice() -> None:
    async with serving(mistakes=0.5) as (served, base_url):
        model = ChatModel(model=NAME, base_url=base_url)
        first, other, again = [await model.complete(request) for request in (CODER, QUESTION, CODER)]
        await model.aclose()
    report = served.report()
    assert (again.text, again.usage) == (first.text, first.usage)
    assert (report.requests, report.paid, report.replayed, report.answered) == (3, 2, 1, 3)
    assert (report.ids_paid_twice, report.prompts_paid_twice) == ((), 0)
    assert report.prompt_tokens == first.usage.prompt_tokens + other.usage.prompt_tokens


async def test_what_is_paid_for_twice_is_told() -> None:
    async with serving() as (served, base_url), httpx.AsyncClient() as client:
        for key in ({}, {"Idempotency-Key": "a"}, {"Idempotency-Key": "b"}):
            await client.post(
                f"{base_url}/chat/completions", json=ASKED, headers={"X-Client-Request-Id": "r1-w1", **key}
            )
    report = served.report()
    assert (report.paid, report.replayed) == (3, 0)
    assert (report.ids_paid_twice, report.prompts_paid_twice) == (("r1-w1",), 1)


async def test_a_request_whose_key_is_just_being_answered_waits_for_that_answer() -> None:
    said: list[str] = []
    async with serving(latency_s=0.2) as (served, base_url), httpx.AsyncClient() as client:

        async def ask() -> None:
            response = await client.post(f"{base_url}/chat/completions", json=ASKED, headers={"Idempotency-Key": "a"})
            said.append(response.json()["choices"][0]["message"]["content"])

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
    report = served.report()
    assert len(said) == 3
    assert len(set(said)) == 1
    assert (report.paid, report.replayed, report.at_once) == (1, 2, 3)


async def test_a_key_that_was_used_with_another_question_is_refused() -> None:
    other = {**ASKED, "messages": [{"role": "user", "content": "Another question."}]}
    async with serving() as (served, base_url), httpx.AsyncClient() as client:
        statuses = [
            (await client.post(f"{base_url}/chat/completions", json=body, headers={"Idempotency-Key": "a"})).status_code
            for body in (ASKED, other, ASKED)
        ]
    assert statuses == [200, 422, 200]
    assert (served.report().refused, served.report().paid, served.report().replayed) == (1, 1, 1)


@pytest.mark.parametrize("kind", ["hang", "cut", "endless"])
async def test_an_answer_that_failed_on_its_way_was_paid_for_and_is_given_again(kind: str) -> None:
    rates = FaultRates(**{kind: 0.5})
    seed = next(seed for seed in range(99) if rates.drawn(0, seed=seed) and not rates.drawn(1, seed=seed))
    async with serving(Conduct(faults=rates, seed=seed)) as (served, base_url):
        model = ChatModel(model=NAME, base_url=base_url, max_retries=0, timeout_s=1.0)
        with pytest.raises(ModelError):
            await model.complete(CODER)
        answer = await model.complete(CODER)
        await model.aclose()
    report = served.report()
    assert answer.text == (await OfflineModel().complete(CODER)).text
    assert report.faults == {kind: 1}
    assert (report.paid, report.replayed, report.answered) == (1, 1, 1)


async def test_an_answer_for_a_client_that_has_gone_is_no_answer() -> None:
    async with serving(latency_s=0.2) as (served, base_url):
        model = ChatModel(model=NAME, base_url=base_url, timeout_s=0.1)
        with pytest.raises(ModelError, match=r"within 0\.1 s"):
            await model.complete(CODER)
        await model.aclose()
    assert (served.report().abandoned, served.report().answered) == (1, 0)


async def test_more_at_once_than_the_limit_are_sent_away_and_come_again() -> None:
    async with serving(Conduct(concurrency_limit=2, retry_after_s=0.02), latency_s=0.02) as (served, base_url):
        model = ChatModel(model=NAME, base_url=base_url, concurrency=6, max_retries=50)
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(
                    model.complete, Request(request_id=f"r{number}", role="coder", system="", parts=("x",))
                )
        await model.aclose()
    report = served.report()
    assert report.answered == 6
    assert report.refused > 0
    assert report.at_once >= 3


def test_faults_come_as_often_as_their_rates_and_the_same_for_a_seed() -> None:
    rates = FaultRates(rate_limit=0.1, server_error=0.1, hang=0.1, cut=0.1, endless=0.1)
    drawn = [rates.drawn(number, seed=1) for number in range(2000)]
    assert drawn == [rates.drawn(number, seed=1) for number in range(2000)]
    assert drawn != [rates.drawn(number, seed=2) for number in range(2000)]
    for kind in FAULTS:
        assert 140 <= drawn.count(kind) <= 260


@pytest.mark.parametrize(
    ("rates", "kind", "tries"),
    [
        (FaultRates(rate_limit=1.0), "rate_limited", 3),
        (FaultRates(server_error=1.0), "server_error", 3),
        (FaultRates(cut=1.0), "broken_off", 3),
        (FaultRates(hang=1.0), "timed_out", 1),
        (FaultRates(endless=1.0), "too_long", 1),
    ],
    ids=FAULTS,
)
async def test_every_fault_is_one_that_the_gateway_knows(rates: FaultRates, kind: str, tries: int) -> None:
    async with serving(Conduct(faults=rates, retry_after_s=0.01)) as (served, base_url):
        timeout_s = 0.3 if rates.hang else 20.0
        model = ChatModel(model=NAME, base_url=base_url, max_retries=2, timeout_s=timeout_s)
        with pytest.raises(ModelError) as caught:
            await model.complete(CODER)
        await model.aclose()
    assert not caught.value.permanent
    assert [fault.kind for fault in caught.value.faults] == [kind] * tries
    assert sum(served.report().faults.values()) == tries


@pytest.mark.parametrize("rates", [FaultRates(cut=1.0), FaultRates(endless=1.0)], ids=["cut", "endless"])
async def test_streams_break_off_and_go_on_for_ever_too(rates: FaultRates) -> None:
    async with serving(Conduct(faults=rates)) as (_, base_url), httpx.AsyncClient() as client:
        asked = {"model": NAME, "stream": True, "messages": [{"role": "user", "content": CODER.prompt}]}
        received = b""

        async def receive() -> None:
            nonlocal received
            async with client.stream("POST", f"{base_url}/chat/completions", json=asked) as response:
                async for part in response.aiter_raw():
                    received += part
                    if len(received) > 1_000_000:
                        return

        if rates.cut:
            with pytest.raises(httpx.RemoteProtocolError):
                await receive()
        else:
            await receive()
    assert received.startswith(b"data: ")
    assert b"[DONE]" not in received


async def test_mistakes_are_counted_by_kind() -> None:
    async with serving(mistakes=Mistakes(1.0, kinds=["prose"])) as (served, base_url):
        model = ChatModel(model=NAME, base_url=base_url)
        await model.complete(CODER)
        await model.aclose()
    assert served.report().mistakes == {"prose": 1}
