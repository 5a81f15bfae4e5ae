"""Which failures are tried again, and after what pause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest

from actors.llm.retries import FIRST_PAUSE_S, LONGEST_PAUSE_S, StatusError, _pause_s, post
from actors.llm.tries import TryingClient, retry_after_s
from tests.actors.llm.endpoint import Reply, completion, endpoint, failure

AT_ONCE = "Retry-After-Ms: 1"


@pytest.fixture
def client() -> TryingClient:
    """Made without an event loop: making one reads files."""
    return TryingClient(timeout_s=10, is_encrypted=False)


async def sent(client: TryingClient, *replies: Reply, retries: int = 3) -> tuple[bytes | int, int]:
    """Return the body, or the status of the last error, and how many requests there were."""
    async with endpoint(lambda number: replies[min(number, len(replies) - 1)]) as server:
        try:
            found: bytes | int = await post(client, f"{server.url}/chat/completions", {}, headers={}, retries=retries)
        except StatusError as error:
            found = error.status
        await client.aclose()
        return found, len(server.requests)


@pytest.mark.anyio
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
async def test_what_may_pass_is_tried_again(client: TryingClient, status: int) -> None:
    good = completion("Yes.")
    assert await sent(client, failure(status, "busy", AT_ONCE), failure(status, "busy", AT_ONCE), good) == (
        good.body,
        3,
    )


@pytest.mark.anyio
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_will_not_pass_is_not_tried_again(client: TryingClient, status: int) -> None:
    assert await sent(client, failure(status, "no", AT_ONCE)) == (status, 1)


@pytest.mark.anyio
async def test_the_last_failure_counts_when_the_tries_are_used_up(client: TryingClient) -> None:
    assert await sent(client, failure(500, "oops", AT_ONCE), failure(503, "busy", AT_ONCE), retries=1) == (503, 2)


@pytest.mark.anyio
async def test_an_endpoint_is_believed_when_it_says_not_to_try_again(client: TryingClient) -> None:
    assert await sent(client, failure(500, "never", "X-Should-Retry: false")) == (500, 1)


@pytest.mark.anyio
async def test_an_endpoint_is_believed_when_it_says_to_try_again(client: TryingClient) -> None:
    good = completion("Yes.")
    assert await sent(client, failure(400, "odd", "X-Should-Retry: true", AT_ONCE), good) == (good.body, 2)


@pytest.mark.anyio
async def test_an_endpoint_that_wants_a_long_pause_is_not_waited_for(client: TryingClient) -> None:
    assert await sent(client, failure(429, "tomorrow", "Retry-After: 86400")) == (429, 1)


def test_pauses_grow_to_a_bound_and_vary() -> None:
    for number, longest_s in ((0, FIRST_PAUSE_S), (1, 1.0), (2, 2.0), (50, LONGEST_PAUSE_S)):
        pauses = {_pause_s(number, None) for _ in range(20)}
        assert len(pauses) > 1
        assert all(0.75 * longest_s <= pause_s <= longest_s for pause_s in pauses)
    assert _pause_s(3, 0.25) == 0.25


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "1.5", "Retry-After-Ms": "20"}, 0.02),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
    ],
)
def test_retry_after_is_read_in_seconds_and_milliseconds(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(httpx2.Headers(headers)) == wait_s


def test_retry_after_may_be_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    wait_s = retry_after_s(httpx2.Headers({"Retry-After": later}))
    assert wait_s is not None
    assert 60 < wait_s <= 90
