"""An endpoint on a free port whose answers a test writes: real HTTP, served from another thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import anyio
import anyio.from_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from actors.llm.base import Answer
from actors.llm.served.server import listening_socket, serve_app
from actors.llm.served.wires import Asked, ChatWire
from messages.base import Usage


class Answering:
    """What the endpoint was asked, and what it answers: in turn, the last one again and again."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[Asked] = []
        self.url = ""

    async def respond(self, http: Request) -> Response:
        """Answer one request."""
        asked = ChatWire().read_asked(await http.body())
        self.asked.append(asked)
        text = self._answers[min(len(self.asked), len(self._answers)) - 1]
        usage = Usage(prompt_tokens=len(asked.prompt) // 4, completion_tokens=len(text) // 4)
        answer = Answer(text=text, model=asked.model, usage=usage, latency_s=0.0)
        name = f"answer-{len(self.asked)}"
        if asked.stream:
            events = ChatWire().events(answer, name, include_usage=asked.include_usage)
            return Response(b"".join(events), media_type="text/event-stream")
        return Response(ChatWire().completion(answer, name), media_type="application/json")


@contextmanager
def answering(*answers: str) -> Iterator[Answering]:
    """Serve these answers."""
    served = Answering(answers)
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_serving(served)),
    ):
        yield served


@asynccontextmanager
async def _serving(served: Answering) -> AsyncIterator[None]:
    app = Starlette(routes=[Route("/v1/chat/completions", served.respond, methods=["POST"])])
    listener = listening_socket(0)
    served.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(serve_app, app, listener))
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
