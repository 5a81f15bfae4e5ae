"""A run that somebody looks at: folded once, however many look, and kept as the updates' JSON."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import aclosing

import anyio
import anyio.to_thread
import msgspec

from ksearch_async.chronicle import Chronicle
from ksearch_async.feed.folding import Folding
from ksearch_async.feed.reading import Batch, Feed
from ksearch_async.feed.shapes import Head, Mark, Totals, Update
from ksearch_async.web.index import Index
from messages.codec import Record
from messages.errors import KsearchError, ProtocolError

_IMPOSSIBLE = (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, AssertionError, RecursionError)
"""What folding ends in where records are well-formed, and no planner can have decided them: somebody edited them."""
_to_json = msgspec.json.Encoder()


class OpenedRun:
    """One run's updates so far. Watchers read them by place, each at its own pace; none holds up another."""

    def __init__(self, run_id: str, feed: Feed) -> None:
        self.run_id = run_id
        self.head: Head | None = None
        self.totals = Totals()
        self.mark: Mark | None = None
        """The latest."""
        self.failure: KsearchError | None = None
        """Why nothing more comes."""
        self.watchers = 0
        self.left_at = anyio.current_time()
        """When the last watcher went, by the event loop's clock."""
        self.index = Index()
        self._feed = feed
        self._folding = Folding()
        self._updates: list[bytes] = []
        self._seqs = array("Q")
        self._current = anyio.Event()
        self._news = anyio.Event()

    async def follow(self) -> None:
        """Fold what the run's feed brings until cancelled, or until it fails: then `failure` says why."""
        try:
            async with aclosing(self._feed.batches()) as batches:
                async for batch in batches:
                    if batch.records:
                        await anyio.to_thread.run_sync(self._fold, batch)
                        self._tell()
                    if batch.is_current:
                        self._current.set()
        except KsearchError as error:
            self.failure = error
            self._current.set()
            self._tell()

    async def current(self) -> None:
        """Wait until all that was there when the run was opened is read.

        Raises:
            messages.errors.KsearchError: it cannot be read.
        """
        await self._current.wait()
        if self.failure is not None and not self._updates:
            raise self.failure

    async def news(self, index: int) -> None:
        """Wait until there is an update at a place, or nothing more comes."""
        while index >= len(self._updates) and self.failure is None:
            await self._news.wait()

    @property
    def is_current(self) -> bool:
        """Say whether all is read that was there when the run was opened, and nothing failed."""
        return self._current.is_set() and self.failure is None

    @property
    def count(self) -> int:
        """How many updates there are."""
        return len(self._updates)

    @property
    def last_seq(self) -> int:
        """Number of the latest record; 0: there is none."""
        return self._seqs[-1] if self._seqs else 0

    def index_after(self, seq: int) -> int:
        """Return the place of the first update behind a record."""
        return bisect_right(self._seqs, seq)

    def updates(self, first: int = 0, last: int | None = None) -> list[bytes]:
        """Return the JSON of updates by their places."""
        return self._updates[first:last]

    def seq_at(self, index: int) -> int:
        """Return the number of the record at a place."""
        return self._seqs[index]

    async def read(self, places: Iterable[int]) -> list[Record]:
        """Read records again, by the places that `index` has.

        Raises:
            messages.errors.BusError: they are not there any more.
        """
        return await self._feed.at(sorted(set(places)))

    @property
    def chronicle(self) -> Chronicle:
        """The run so far. It is folded in another thread: read its values, which never change, and keep none of it."""
        return self._folding.chronicle

    def _fold(self, batch: Batch) -> None:
        for record, place in zip(batch.records, batch.places, strict=True):
            try:
                update = self._folding.take(record)
            except _IMPOSSIBLE as error:
                raise ProtocolError(f"record {record.seq} cannot follow on those before it: {error!r}") from error
            self.index.take(record, place)
            self._note(update)
            self._seqs.append(update.seq)
            self._updates.append(_to_json.encode(update))

    def _note(self, update: Update) -> None:
        self.totals = update.totals
        self.head = update.head or self.head
        self.mark = update.marks[-1] if update.marks else self.mark

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()
