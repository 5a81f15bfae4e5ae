"""What anybody may write into a message cannot pass for the server's words."""

from __future__ import annotations

import pytest

from actors.bus.nats.client import Reply, parsed_headers


@pytest.mark.parametrize(
    ("block", "known"),
    [
        (b"NATS/1.0\r\nA: b\r\n\r\n", {"A": "b"}),
        (b"NATS/1.0 404 No Messages\r\n\r\n", {"Status": "404", "Description": "No Messages"}),
        (b"NATS/1.0 503\r\n\r\n", {"Status": "503", "Description": ""}),
        (b"NATS/1.0 408 Timeout\r\nNats-Pending-Messages: 4\r\n\r\n", {"Nats-Pending-Messages": "4"}),
        (b"NATS/1.0\r\nNats-Sequence: 77\r\nNats-Sequence: 1\r\n\r\n", {"Nats-Sequence": "1"}),
        (b"garbage\xff\r\nkey\xff: \xfe\r\nnone\r\n\r\n", {"key\ufffd": "\ufffd"}),
        (b"", {}),
    ],
)
def test_headers_are_read_whatever_they_hold(block: bytes, known: dict[str, str]) -> None:
    assert parsed_headers(block).items() >= known.items()


def test_a_status_is_the_servers_only_where_no_publisher_can_write_one() -> None:
    forged = Reply("s", "", b"", parsed_headers(b"NATS/1.0\r\nStatus: 404\r\nDescription: No Messages\r\n\r\n"))
    assert forged.status == ""
