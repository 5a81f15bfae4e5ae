"""Notices beside a session: follows the run's journal, as every lens does, and has what is due sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import structlog

from ksearch_async.config import NotifySettings
from ksearch_async.feed.reading import LOOK_S, JournalReader
from ksearch_async.notices.asked import SECRET_VARIABLE, URL_VARIABLE, check_url, kinds_of
from ksearch_async.notices.herald import Herald
from ksearch_async.runs import RunFolder
from ksearch_async.secrets import keep_secret
from messages.errors import KsearchError

if TYPE_CHECKING:
    from ksearch_async.notices.post import Post

_LONGEST_PLAIN_PATH = 16
"""Characters of an address's path that may well stand elsewhere in a log; longer ones hold a token."""
_PARTING_S = 20.0
"""How long a session that is over waits for the last notices."""
_HURRY_S = 3.0
"""The same for one that is to end now."""

log = structlog.get_logger(__name__)


@asynccontextmanager
async def noticed(
    folder: RunFolder, settings: NotifySettings, environment: Mapping[str, str], *, after: int
) -> AsyncIterator[None]:
    """Have notices of a run sent while this is entered, if somebody wants them.

    Args:
        folder: the run's; its journal is what is told of.
        settings: where to, and of what.
        environment: where the secret is, and the address if the settings have none.
        after: the last record that is no news.

    Raises (when entered):
        ConfigError: the environment's address is none.
    """
    url = settings.url or environment.get(URL_VARIABLE)
    if not url:
        yield
        return
    from ksearch_async.notices.post import Post  # noqa: PLC0415 - brings an HTTP client, which others need not load

    check_url(url)
    secret, parts = environment.get(SECRET_VARIABLE, ""), urlsplit(url)
    keep_secret(secret, url, parts.query, parts.path if len(parts.path) > _LONGEST_PLAIN_PATH else None)
    post = Post(url, secret, settings.timeout_s)
    watch = _Watch(folder, Herald(kinds_of(settings.on)), post, after)
    async with anyio.create_task_group() as beside:
        beside.start_soon(watch.follow)
        beside.start_soon(post.deliver)
        patience_s, watch.has_failed = _PARTING_S, True
        try:
            yield
            watch.has_failed = False
        except anyio.get_cancelled_exc_class():
            patience_s, watch.has_failed = _HURRY_S, False
            raise
        finally:
            watch.ended.set()
            with anyio.move_on_after(patience_s, shield=True):
                await post.empty.wait()
            post.report()
            beside.cancel_scope.cancel()


class _Watch:
    """Follows the journal on the event loop: reading is a thread's."""

    def __init__(self, folder: RunFolder, herald: Herald, post: Post, after: int) -> None:
        self.ended = anyio.Event()
        self.has_failed = False
        self._folder = folder
        self._herald = herald
        self._post = post
        self._after = after

    async def follow(self) -> None:
        """Send what is due until the session and the journal have ended."""
        with anyio.CancelScope(shield=True):  # whoever made us cancels the post when patience ends, and we end then
            try:
                await self._follow()
            except KsearchError as error:
                log.warning("no more notices are sent", error=str(error))
            if self.has_failed:
                self._post.put(self._herald.failed())
            self._post.close()

    async def _follow(self) -> None:
        reader = JournalReader(self._folder.journal)
        while True:
            was_over, is_there = self.ended.is_set(), self._folder.journal.exists()
            batch = await anyio.to_thread.run_sync(reader.read) if is_there else None
            for record in batch.records if batch else ():
                notices = self._herald.take(record)
                if record.seq > self._after:
                    self._post.put(notices)
            if batch is None or batch.is_current:
                if was_over:
                    return
                with anyio.move_on_after(LOOK_S):
                    await self.ended.wait()
