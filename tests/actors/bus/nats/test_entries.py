from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from actors.bus.nats.client import Reply
from actors.bus.nats.entries import GHOST_S, is_gone

WRITTEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
STAMP = "2026-01-31T12:00:00.123456789Z"


def reply(**headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply("_INBOX.x", "", b"someone", {"Nats-Time-Stamp": STAMP, "Nats-Sequence": "7", **named})


def test_the_mark_of_a_removed_entry_is_no_entry() -> None:
    assert is_gone(reply(KV_Operation="DEL"), WRITTEN)
    assert is_gone(reply(Nats_Marker_Reason="MaxAge"), WRITTEN)


def test_an_entry_that_is_put_for_ever_stays() -> None:
    assert not is_gone(reply(), WRITTEN + timedelta(days=4000))


@pytest.mark.parametrize(("after_s", "gone"), [(9, False), (10 + GHOST_S - 1, False), (10 + GHOST_S + 1, True)])
def test_an_entry_that_a_killed_server_found_again_is_no_entry_once_clocks_cannot_explain_it(
    after_s: float, gone: bool
) -> None:
    assert is_gone(reply(Nats_TTL="10s"), WRITTEN + timedelta(seconds=after_s)) is gone
