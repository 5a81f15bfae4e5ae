"""The dialect `offline`."""

from __future__ import annotations

import anyio

from actors.llm.base import Answer, Request
from actors.llm.offline.coding import code_answer
from actors.llm.offline.planning import plan_answer
from actors.llm.tokens import estimated_usage

MODEL_NAME = "offline-rules"


class OfflineModel:
    """Answers by built-in rules. Deterministic: the same seed and prompt give the same answer."""

    def __init__(self, *, seed: int = 0, latency_s: float = 0.0) -> None:
        """Set the rules up.

        Args:
            seed: chooses the order in which parameters are tried.
            latency_s: how long an answer takes, to stand in for an endpoint.
        """
        self._seed = seed
        self._latency_s = latency_s

    async def complete(self, request: Request) -> Answer:
        """Answer one question."""
        started = anyio.current_time()
        await anyio.sleep(self._latency_s)
        if request.role == "planner":
            text = plan_answer(request.prompt)
        else:
            text = code_answer(request.prompt, seed=self._seed)
        return Answer(
            text=text,
            model=MODEL_NAME,
            usage=estimated_usage(request, text),
            latency_s=anyio.current_time() - started,
        )

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
