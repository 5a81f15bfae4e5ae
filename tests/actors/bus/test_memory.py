from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from actors.bus.journal import JournalStore
from actors.bus.memory import MemoryBus
from actors.bus.stream import EventStore, MemoryStore
from tests.contracts.bus import BusContract
from tests.contracts.bus_streams import StreamContract

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class OverStores:
    """Buses one after another over the same stores."""

    def __init__(self, open_store: Callable[[str], EventStore]) -> None:
        self._open_store = open_store
        self.bus = MemoryBus(open_store)

    async def restart(self) -> MemoryBus:
        self.bus.close()
        self.bus = MemoryBus(self._open_store)
        return self.bus


class MemoryBusContract(BusContract):
    @pytest.fixture
    def ack_wait_s(self) -> float:
        return 30.0

    @pytest.fixture
    def bus(self, stores: OverStores) -> MemoryBus:
        return stores.bus

    @pytest.fixture
    def restart(self, stores: OverStores) -> Callable[[], Awaitable[MemoryBus]]:
        return stores.restart


class TestMemoryBusOverMemory(MemoryBusContract):
    @pytest.fixture
    def stores(self) -> OverStores:
        kept: dict[str, MemoryStore] = {}
        return OverStores(lambda run_id: kept.setdefault(run_id, MemoryStore()))


class TestMemoryBusOverAJournal(MemoryBusContract):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> Iterator[OverStores]:
        stores = OverStores(lambda run_id: JournalStore(tmp_path / f"{run_id}.jsonl", sync="never"))
        yield stores
        stores.bus.close()


class TestEventsInASyncedJournal(StreamContract):
    """On the real clock: syncing happens in a thread."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Iterator[OverStores]:
        stores = OverStores(lambda run_id: JournalStore(tmp_path / f"{run_id}.jsonl", sync="always"))
        yield stores
        stores.bus.close()

    @pytest.fixture
    def bus(self, stores: OverStores) -> MemoryBus:
        return stores.bus

    @pytest.fixture
    def restart(self, stores: OverStores) -> Callable[[], Awaitable[MemoryBus]]:
        return stores.restart
