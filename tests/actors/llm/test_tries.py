"""What a failed try tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest

from actors.llm.tries import retry_after_s


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
