"""The contract of every bus, on a real server."""

from __future__ import annotations

import pytest

from tests.contracts.bus import BusContract

pytestmark = [pytest.mark.anyio, pytest.mark.nats]


class TestNatsBus(BusContract):
    @pytest.fixture
    def ack_wait_s(self) -> float:
        return 0.7
