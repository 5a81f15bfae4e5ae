"""What a probe finds, against endpoints that lack one thing or another."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

import pytest

from actors.llm.chat import ChatModel
from actors.llm.features import Features
from actors.llm.probe import Probe, probe_endpoint
from tests.actors.llm.dialects import Chat, Dialect, Responses
from tests.actors.llm.endpoint import Endpoint, Reply, endpoint, failure

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-key"
Answers: TypeAlias = Callable[[Dialect, dict[str, object]], Reply | None]
"""What an endpoint does otherwise than one that can do everything; from dialect and body."""
IN_ORDER = json.dumps({"language": "English", "words": 1})


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


def able(dialect: Dialect, body: dict[str, object]) -> Reply:
    """Answer as an endpoint does that can do everything."""
    text = IN_ORDER if "json_schema" in str(body) else "Hello."
    if body.get("stream"):
        return Reply(events=dialect.events((text,)))
    return dialect.whole(text)


async def probed(answers: Answers, *, models: Reply | None = None) -> tuple[Probe, Endpoint]:
    listed = models or Reply(body=b'{"object": "list", "data": [{"id": "small", "object": "model"}]}')
    server: Endpoint

    def reply(_number: int) -> Reply:
        path, body = server.paths[-1], server.requests[-1]
        if path.endswith("/models"):
            return listed
        dialect = Chat() if path.endswith("/chat/completions") else Responses()
        return answers(dialect, body) or able(dialect, body)

    async with endpoint(reply) as server:
        probe = await probe_endpoint(model="small", base_url=server.url, api_key=KEY, timeout_s=10.0)
    assert KEY not in repr(probe)
    return probe, server


def states(probe: Probe) -> dict[str, str]:
    return {finding.name: finding.state for finding in probe.findings}


async def test_an_endpoint_that_can_do_everything_is_asked_seven_small_questions() -> None:
    probe, server = await probed(lambda *_: None)
    assert set(states(probe).values()) == {"yes"}
    found = probe.capabilities
    assert found.dialects == ("chat", "responses")
    assert (found.structured, found.streams, found.usage_in_stream, found.caching_reported) == ("yes",) * 4
    assert found.refused == ()
    assert found.features == Features(structured=True)
    assert probe.questions == len(server.requests) - 1 == 7
    assert probe.usage.calls == 7


@pytest.mark.parametrize("name", ["temperature", "seed", "reasoning_effort"])
async def test_a_parameter_that_is_refused_is_named_with_what_the_endpoint_said(name: str) -> None:
    probe, _ = await probed(lambda _, body: failure(400, f"Unsupported: {name}, {KEY}") if name in body else None)
    assert probe.capabilities.refused == (name,)
    (finding,) = (finding for finding in probe.findings if finding.name == name)
    assert (finding.state, finding.detail) == ("no", f"HTTP 400: Unsupported: {name}, ***")


async def test_a_failure_is_no_refusal() -> None:
    busy = failure(503, "busy", "Retry-After-Ms: 1")
    probe, _ = await probed(lambda _, body: busy if "seed" in body or body.get("stream") else None)
    assert probe.capabilities.refused == ()
    assert (states(probe)["seed"], states(probe)["streaming"]) == ("unknown", "unknown")
    assert probe.capabilities.features.streams


async def test_the_old_name_of_the_limit_is_found_and_used() -> None:
    def old(_dialect: Dialect, body: dict[str, object]) -> Reply | None:
        return failure(400, "unknown: max_completion_tokens") if "max_completion_tokens" in body else None

    probe, server = await probed(old)
    assert probe.capabilities.max_tokens_name == "max_tokens"
    assert all("max_tokens" in body for body in server.requests[2:] if "messages" in body)


async def test_an_endpoint_with_the_responses_api_only_is_asked_in_it() -> None:
    probe, _ = await probed(lambda dialect, _: failure(404, "no such path") if isinstance(dialect, Chat) else None)
    assert probe.capabilities.dialects == ("responses",)
    assert probe.capabilities.refused == ("seed",)
    assert probe.capabilities.structured == "yes"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (failure(400, "response_format is not supported"), "no"),
        (Chat().whole("Hello."), "no"),
        (Chat().whole('{"language": "En', finish_reason="length"), "unknown"),
    ],
)
async def test_structured_output_counts_only_if_it_is_kept_to(answer: Reply, state: str) -> None:
    probe, _ = await probed(lambda _, body: answer if "response_format" in body else None)
    assert (probe.capabilities.structured, states(probe)["structured output"]) == (state, state)
    assert not probe.capabilities.features.structured


async def test_an_endpoint_that_sends_all_at_once_does_not_stream() -> None:
    probe, _ = await probed(lambda dialect, body: dialect.whole("Hello.") if body.get("stream") else None)
    assert probe.capabilities.streams == "no"
    assert not probe.capabilities.features.streams


async def test_an_endpoint_that_cannot_count_in_streams_is_found() -> None:
    def silent(dialect: Dialect, body: dict[str, object]) -> Reply | None:
        events = dialect.events(("Hello.",))
        return Reply(events=(*events[:-2], events[-1])) if body.get("stream") else None

    probe, _ = await probed(silent)
    assert (probe.capabilities.streams, probe.capabilities.usage_in_stream) == ("yes", "no")


async def test_a_wrong_key_says_so_and_nothing_more_is_asked() -> None:
    probe, server = await probed(lambda *_: failure(401, f"wrong key {KEY}"), models=failure(401, "wrong key"))
    assert probe.capabilities.dialects == ()
    assert "refused the key" in next(finding.detail for finding in probe.findings if finding.name == "dialect chat")
    assert probe.questions == 2
    assert len(server.requests) == 3


async def test_nobody_there_is_asked_nothing() -> None:
    async with endpoint(lambda _: Reply(drops=True)) as server:
        url = server.url
    probe = await probe_endpoint(model="small", base_url=url, api_key="", timeout_s=10.0)
    assert (probe.questions, states(probe)) == (0, {"reachable": "no"})


async def test_an_endpoint_without_a_list_of_models_is_asked_all_the_same() -> None:
    probe, _ = await probed(lambda *_: None, models=Reply(body=b"<html>"))
    assert states(probe)["reachable"] == "yes"
    assert probe.capabilities.dialects == ("chat", "responses")
