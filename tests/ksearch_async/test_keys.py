"""A key is in the requests to its endpoint and nowhere else, whatever the endpoint does with it.

`ksearch_async.follow.logs` searches log lines for keys; it is not told of this one, so that nothing may depend on that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from actors.llm.chat import ChatModel
from actors.llm.endpoint import EndpointModel
from actors.llm.responses import ResponsesModel
from ksearch_async.follow import logs
from ksearch_async.follow.logs import configure_logs
from ksearch_async.views.events import events_of
from tests.actors.llm.dialects import Chat, Responses
from tests.actors.llm.endpoint import Reply, endpoint, failure
from tests.ksearch_async.test_over_http import led, records, session

pytestmark = pytest.mark.anyio

KEY = "sk-4f9c-distinctive-key"
SAID = f"you sent Authorization: Bearer {KEY}"
AT_ONCE = "Retry-After-Ms: 1"
PATHS: dict[str, Reply] = {
    "wrong key": failure(401, SAID),
    "unknown": failure(404, SAID),
    "refused": failure(400, SAID),
    "too many": failure(429, SAID, AT_ONCE),
    "broken": failure(500, SAID, AT_ONCE),
    "no JSON": Reply(body=f"<html>{SAID}</html>".encode()),
    "no answer": Reply(body=json.dumps({"choices": SAID, "output": SAID}).encode()),
    "no event": Reply(events=(f"data: {SAID}\n\n".encode(),)),
    "broken stream": Reply(
        events=(b"data: %s\n\n" % json.dumps({"type": "error", "message": SAID, "error": SAID}).encode(),)
    ),
    "an answer of chat": Chat().whole(SAID),
    "an answer of responses": Responses().whole(SAID),
    "nothing": Reply(drops=True),
}


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make clients without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.mark.parametrize("made", [ChatModel, ResponsesModel])
@pytest.mark.parametrize("path", PATHS)
async def test_a_key_is_in_no_journal_log_event_or_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], made: type[EndpointModel], path: str
) -> None:
    log = tmp_path / "ksearch.log"
    logs._known.clear()  # nothing may depend on lines being searched
    search = session(tmp_path / "run", branches=1)
    configure_logs(log)
    async with endpoint(lambda _: PATHS[path]) as server:
        lines = await led(search, made(model="small", base_url=server.url, api_key=KEY, max_retries=1, timeout_s=5.0))
    assert any(f"Bearer {KEY}" in head for head in server.heads)
    told = records(search)
    assert len(told) > 3
    seen = [
        search.folder.journal.read_text(),
        log.read_text(),
        "\n".join(lines),
        repr([event for record in told for event in events_of(record)]),
        *capfd.readouterr(),
    ]
    assert [text for text in seen if KEY in text] == []
