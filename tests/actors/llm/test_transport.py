"""What a failed try tells."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest

from actors.llm.base import Request
from actors.llm.chat import ChatModel
from actors.llm.transport import retry_after_s
from messages.base import ModelError
from tests.actors.llm.endpoint import Reply, endpoint


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


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "code"), [(429, "insufficient_quota"), (402, "payment_required")])
async def test_an_endpoint_that_wants_to_be_paid_is_asked_once_and_no_more(status: int, code: str) -> None:
    body = json.dumps({"error": {"message": "no credit left", "code": code}}).encode()
    async with endpoint(lambda _: Reply(status=status, body=body)) as server:
        model = ChatModel(model="small", base_url=server.url)
        with pytest.raises(ModelError, match=r"wants to be paid.*no credit left") as caught:
            await model.complete(Request(request_id="r1", role="coder", system="Be brief.", parts=("Write.",)))
        await model.aclose()
    assert caught.value.permanent
    assert [fault.kind for fault in caught.value.faults] == ["refused"]
    assert len(server.requests) == 1
