"""A model whose answers somebody else writes: a function of the request. For tests and load work."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from actors.llm.base import Answer, Request, estimated_usage


class ScriptedModel:
    """Answers what `answers` returns, after `latency_s`; raises what it returns if that is an exception."""

    def __init__(self, answers: Callable[[Request], str | Exception], *, latency_s: float = 0.0) -> None:
        self._answers = answers
        self._latency_s = latency_s

    async def complete(self, request: Request) -> Answer:
        """Answer one question.

        Raises:
            Exception: whatever `answers` returned.
        """
        started = anyio.current_time()
        await anyio.sleep(self._latency_s)
        text = self._answers(request)
        if isinstance(text, Exception):
            raise text
        return Answer(
            text=text,
            model="scripted",
            usage=estimated_usage(request, text),
            latency_s=anyio.current_time() - started,
        )

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
