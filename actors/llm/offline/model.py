"""The dialect `offline`."""

from __future__ import annotations

from collections import Counter

import anyio

from actors.llm.base import Answer, Request, estimated_usage
from actors.llm.offline.answers import code_answer, plan_answer
from actors.llm.offline.mistakes import Mistakes

MODEL_NAME = "offline-rules"


class OfflineModel:
    """Answers by built-in rules. Deterministic: the same seed and prompt give the same answer, mistakes included."""

    def __init__(self, *, seed: int = 0, latency_s: float = 0.0, mistakes: Mistakes | float = 0.0) -> None:
        """Set up the rules.

        Args:
            seed: determines the order in which parameters are tried, and the answers with mistakes.
            latency_s: duration of an answer, as an endpoint would take.
            mistakes: share of answers with a mistake that models make, 0 to 1; or the mistakes themselves.
        """
        self._seed = seed
        self._latency_s = latency_s
        self._mistakes = mistakes if isinstance(mistakes, Mistakes) else Mistakes(mistakes, seed=seed)
        self.mistakes_made: Counter[str] = Counter()
        """Number of mistakes by kind."""

    async def complete(self, request: Request) -> Answer:
        """Answer one question."""
        started = anyio.current_time()
        await anyio.sleep(self._latency_s)
        if request.role == "planner":
            text = plan_answer(request.prompt)
        else:
            text = code_answer(request.prompt, seed=self._seed)
        given = self._mistakes.spoil(request.role, request.prompt, text)
        if given.mistake is not None:
            self.mistakes_made[given.mistake] += 1
        return Answer(
            text=given.text,
            model=MODEL_NAME,
            usage=estimated_usage(request, given.text),
            latency_s=anyio.current_time() - started,
            finish_reason=given.finish_reason,
        )

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
