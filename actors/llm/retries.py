"""Asks an endpoint again where that may help: after which failures, how often, after what pause.

The rules are those that users of the openai package know. The package itself is not used: importing it takes half a
second of CPU and 25 MB, more than everything else that a search needs before its first question.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import anyio
import httpx2

from actors.llm.tries import CONNECTION_FAILURES, TryingClient, retry_after_s

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 8.0
LONGEST_RETRY_AFTER_S: Final = 120.0
"""An endpoint that asks for a longer pause is not asked again."""
_JITTER: Final = 0.25
_PASSING = frozenset({408, 409, 429})


class StatusError(Exception):
    """The endpoint answered with an error, for the last time."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.status = response.status_code
        self.text = response.text


async def post(
    client: TryingClient, url: str, body: Mapping[str, object], *, headers: Mapping[str, str], retries: int
) -> bytes:
    """Send a question until it is answered, or trying again makes no sense.

    Args:
        client: sends one try.
        url: of the endpoint's resource.
        body: sent as JSON.
        headers: sent along; the same with every try.
        retries: tries after the first.

    Raises:
        StatusError: the last answer was an error.
        httpx2.RequestError, ssl.SSLError, anyio.EndOfStream: the last try brought no answer.
        actors.llm.tries.AnswerTooLongError: at once.
        actors.llm.tries.NeverReachedError: at once.
    """
    number = 0
    while True:
        try:
            response = await client.post(url, json=body, headers=dict(headers))
        except CONNECTION_FAILURES:
            if number >= retries:
                raise
            asked_s = None
        else:
            if response.is_success:
                return response.content
            asked_s = retry_after_s(response.headers)
            if number >= retries or not _may_pass(response, asked_s):
                raise StatusError(response)
        await anyio.sleep(_pause_s(number, asked_s))
        number += 1


def _may_pass(response: httpx2.Response, asked_s: float | None) -> bool:
    """Say whether another try may be answered; an endpoint that says so itself (`X-Should-Retry`) is believed."""
    if asked_s is not None and asked_s > LONGEST_RETRY_AFTER_S:
        return False
    said = response.headers.get("x-should-retry")
    if said in ("true", "false"):
        return bool(said == "true")
    return response.status_code in _PASSING or response.status_code >= 500


def _pause_s(number: int, asked_s: float | None) -> float:
    """Return how long to wait after the n-th try (from 0), a little less each time: many do not come back at once."""
    if asked_s is not None and asked_s > 0:
        return asked_s
    longest_s = min(FIRST_PAUSE_S * 2.0 ** min(number, 16), LONGEST_PAUSE_S)
    return longest_s * (1 - _JITTER * random.random())
