"""Rate limits of one endpoint, for all roles of this process: calls in flight, requests and tokens a minute.

The user's limits hold in every stretch of 60 s (prompt tokens estimated, answers expected to be as long as the last
ones). The endpoint's own limit is learned from HTTP 429s as TCP learns a link's (additive increase, multiplicative
decrease: Chiu, Jain 1989): each halves the calls in flight, once for all calls under way, and nothing begins until
`Retry-After` has passed, or else a doubling pause; each answer adds a part of a call. The planner's questions go first:
many branches wait for it. Other processes are noticed only by their effect.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count
from typing import Final

import anyio
import msgspec
import structlog

from actors.bus.waiting import Changes
from actors.llm.base import Answer, Model, Request, Role, estimated_tokens
from messages.base import EndpointFault

PERIOD_S: Final = 60.0
LONGEST_PAUSE_S: Final = 600.0
"""Longest pause that an endpoint may ask for."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_OWN_PAUSE_S: Final = 60.0
_ANSWER_TOKENS: Final = 2000
"""Expected length of the first answer."""
_REMEMBERED: Final = 0.8
"""Weight of the past in the mean length of answers."""
_RANKS: Final[dict[Role, int]] = {"planner": 0, "coder": 1}

log = structlog.get_logger(__name__)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Limits set by the user."""

    in_flight: int = 8
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Prompts and answers together."""


class Entry:
    """One admitted question."""

    def __init__(self, tokens: int, at: float) -> None:
        self.tokens = tokens
        self.at = at


class Gate:
    """Admits questions to one endpoint, in turn."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._window = float(terms.in_flight)
        self._in_flight = 0
        self._paused_until = 0.0
        self._pauses = 0
        """In a row, without an answer in between."""
        self._last_cut = -math.inf
        self._recent: deque[Entry] = deque()
        self._line: list[tuple[int, int]] = []
        self._tickets = count()
        self._changes = Changes()

    @property
    def window(self) -> float:
        """Calls that may be in flight, as learned."""
        return self._window

    @asynccontextmanager
    async def admitted(self, role: Role, tokens: int) -> AsyncIterator[Entry]:
        """Wait until a question with these expected tokens fits, and count it in flight inside the block."""
        entry = await self._enter(_RANKS[role], tokens)
        try:
            yield entry
        finally:
            self._in_flight -= 1
            self._changes.note()

    def note_fault(self, entry: Entry, fault: EndpointFault) -> None:
        """Learn from a failed try."""
        now = anyio.current_time()
        self._recent.append(Entry(0, now))
        if fault.kind != "rate_limited":
            return
        asked_s = fault.retry_after_s
        own_s = min(_LONGEST_OWN_PAUSE_S, _FIRST_PAUSE_S * 2.0**self._pauses)
        pause_s = own_s if asked_s is None else min(max(asked_s, 0.0), LONGEST_PAUSE_S)
        self._paused_until = max(self._paused_until, now + pause_s)
        if entry.at > self._last_cut:  # of the calls that were under way together the first one says it for all
            self._window, self._last_cut = max(1.0, self._window / 2), now
            self._pauses += 1
            log.info("the model's endpoint is asked less", pause_s=round(pause_s, 1), in_flight=int(self._window))
        self._changes.note()

    def note_answer(self, entry: Entry, tokens: int) -> None:
        """Learn from an answer; `tokens` of question and answer take the place of the expected ones."""
        entry.tokens = tokens
        self._pauses = 0
        self._window = min(float(self._terms.in_flight), self._window + 1.0 / self._window)
        self._changes.note()

    async def _enter(self, rank: int, tokens: int) -> Entry:
        ticket = (rank, next(self._tickets))
        heappush(self._line, ticket)
        try:
            while (wait_s := self._wait_s(ticket, tokens)) > 0:
                with anyio.move_on_after(wait_s):
                    await self._changes.next()
            entry = Entry(tokens, anyio.current_time())
            self._in_flight += 1
            self._recent.append(entry)
        finally:
            self._leave(ticket)
        return entry

    def _leave(self, ticket: tuple[int, int]) -> None:
        if self._line[0] == ticket:
            heappop(self._line)
        else:
            self._line.remove(ticket)
            self._line.sort()
        self._changes.note()

    def _wait_s(self, ticket: tuple[int, int], tokens: int) -> float:
        """Return the shortest wait for a question; infinite: until something else happens."""
        if self._line[0] != ticket or self._in_flight >= int(self._window):
            return math.inf
        now = anyio.current_time()
        while self._recent and self._recent[0].at <= now - PERIOD_S:
            self._recent.popleft()
        free_at = max(self._paused_until, self._request_free_at(), self._tokens_free_at(tokens))
        return max(0.0, free_at - now)

    def _request_free_at(self) -> float:
        limit = self._terms.requests_per_minute
        if limit is None or len(self._recent) < limit:
            return 0.0
        return self._recent[len(self._recent) - limit].at + PERIOD_S

    def _tokens_free_at(self, tokens: int) -> float:
        """Return when this number of tokens fits; a question above the limit fits once nothing else counts."""
        limit = self._terms.tokens_per_minute
        used = sum(entry.tokens for entry in self._recent)
        if limit is None or used + tokens <= limit:
            return 0.0
        for entry in self._recent:
            used -= entry.tokens
            if used + tokens <= limit or not used:
                return entry.at + PERIOD_S
        return 0.0


class LimitedModel:
    """A model that is asked through a gate."""

    def __init__(self, model: Model, gate: Gate) -> None:
        self._model = model
        self._gate = gate
        self._answer_tokens: dict[Role, float] = {}

    async def complete(self, request: Request) -> Answer:
        """See `Model.complete`; waiting for the gate is no part of the latency."""
        usual = self._answer_tokens.get(request.role, _ANSWER_TOKENS)
        prompt = estimated_tokens(request.system) + estimated_tokens(request.prompt)
        async with self._gate.admitted(request.role, prompt + int(usual)) as entry:
            token = _asking.set((self._gate, entry))
            try:
                answer = await self._model.complete(request)
            finally:
                _asking.reset(token)
            self._gate.note_answer(entry, answer.usage.tokens)
        known = self._answer_tokens.get(request.role, float(answer.usage.completion_tokens))
        self._answer_tokens[request.role] = _REMEMBERED * known + (1 - _REMEMBERED) * answer.usage.completion_tokens
        return answer

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        await self._model.aclose()


_asking: ContextVar[tuple[Gate, Entry]] = ContextVar("the question in progress")


def tell_gate(fault: EndpointFault) -> None:
    """Report a failed try to the gate of the current question, if any; the next try is another request."""
    asking = _asking.get(None)
    if asking is not None:
        gate, entry = asking
        gate.note_fault(entry, fault)
