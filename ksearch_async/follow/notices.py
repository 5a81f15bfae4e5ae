"""Notices about a run: which are due, and sending them to a webhook beside the search.

A notice holds figures and our own words: no source, no output of a kernel, no model's text, no error's text.

The body is `herald.Notice`; docs/guides/tracking.md says what each field means. With a secret it is signed: the header
`X-Ksearch-Signature` is `sha256=` and the HMAC-SHA256, in hex, of the header `X-Ksearch-Timestamp`, a dot and the body.
Of several bests that wait only the latest is sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
import structlog

from ksearch_async.follow.logs import keep_secret
from ksearch_async.follow.notice_settings import SECRET_VARIABLE, URL_VARIABLE, NoticeKind, check_url, kinds_of
from ksearch_async.runs.feed import LOOK_S, Head, JournalReader, Mark, Totals
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.updates import Folding
from ksearch_async.settings.table import NotifySettings
from ksearch_async.views.lines import STOP_WORDS
from messages.base import KsearchError
from messages.codec import Record
from messages.events import JobLost, JobsUnserved

_QUIET_S = 600.0
"""Trouble of one kind is told of once in this time."""

if TYPE_CHECKING:
    from ksearch_async.follow.webhook import Post


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """How the run stands, and its best."""

    standing: str
    stopped_by: str
    rounds: int
    max_rounds: int
    elapsed_s: float
    cost_usd: float
    model_calls: int
    speedup: float | None = None
    """Median against the reference; null: there is no best, or it has a score."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    latency_us: float | None = None
    score: float | None = None
    best_id: str = ""
    best_round: int = 0


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook's request."""

    id: str
    """The same whenever this notice is sent again: receivers know duplicates by it."""
    kind: NoticeKind
    run: str
    task: str
    at: str
    """ISO 8601, UTC: when it happened."""
    text: str
    """A line for people."""
    figures: Figures
    version: int = 1


class Herald:
    """Folds a run's records and says which notices are due. Pure but for the time that trouble is told of again."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._folding = Folding()
        self._head: Head | None = None
        self._best: Mark | None = None
        self._told_at: dict[str, float] = {}

    def take(self, record: Record) -> list[Notice]:
        """Return the notices of a record."""
        was_over = self._folding.chronicle.finished is not None
        update = self._folding.take(record)
        self._head = update.head or self._head
        if self._head is None:
            return []
        notices = []
        for mark in update.marks[-1:]:
            self._best = mark
            notices.append(self._notice("best", record, update.totals, self._best_words()))
        if trouble := _trouble_words(record):
            elapsed_s, told_s = update.totals.elapsed_s, self._told_at.get(trouble)
            if told_s is None or elapsed_s - told_s >= _QUIET_S:
                self._told_at[trouble] = elapsed_s
                notices.append(self._notice("trouble", record, update.totals, trouble))
        if update.totals.standing == "finished" and not was_over:
            notices.append(self._notice("finished", record, update.totals, self._end_words(update.totals)))
        return [notice for notice in notices if notice.kind in self._kinds]

    def failed(self) -> list[Notice]:
        """Return the notice of a session that ended by an error of ours or of the disk, which no record tells of."""
        chronicle = self._folding.chronicle
        if self._head is None or chronicle.last_at is None or "trouble" not in self._kinds:
            return []
        totals = Totals(rounds=chronicle.state.rounds, elapsed_s=chronicle.elapsed_s, cost_usd=chronicle.state.cost_usd)
        text = f"{self._head.run_id}: the session failed; ksearch resume {self._head.run_id} goes on"
        return [self._made("trouble", f"failed-{chronicle.last_seq}", chronicle.last_at.isoformat(), text, totals)]

    def _notice(self, kind: NoticeKind, record: Record, totals: Totals, words: str) -> Notice:
        head = self._head
        return self._made(kind, f"{kind}-{record.seq}", record.at, f"{head.run_id if head else ''}: {words}", totals)

    def _made(self, kind: NoticeKind, suffix: str, at: str, text: str, totals: Totals) -> Notice:
        head, best = self._head, self._best
        run_id = head.run_id if head else ""
        figures = Figures(
            standing=totals.standing,
            stopped_by=totals.stopped_by,
            rounds=totals.rounds,
            max_rounds=head.max_rounds if head else 0,
            elapsed_s=round(totals.elapsed_s, 3),
            cost_usd=totals.cost_usd,
            model_calls=totals.calls,
        )
        if best is not None:
            is_score = best.speedup is None
            figures = msgspec.structs.replace(
                figures,
                speedup=best.speedup,
                speedup_low=None if is_score else best.credit,
                speedup_high=best.speedup_high,
                latency_us=best.latency_us,
                score=best.credit if is_score else None,
                best_id=best.candidate_id,
                best_round=best.round,
            )
        task = head.task if head else ""
        return Notice(id=f"{run_id}.{suffix}", kind=kind, run=run_id, task=task, at=at, text=text, figures=figures)

    def _best_words(self) -> str:
        best = self._best
        return f"new best: {_worth_words(best)}, round {best.round}" if best else ""

    def _end_words(self, totals: Totals) -> str:
        why = STOP_WORDS.get(totals.stopped_by, totals.stopped_by)
        found = f"best {_worth_words(self._best)}" if self._best else "nothing found"
        return f"over after {totals.rounds} rounds ({why}): {found}"


def _worth_words(best: Mark) -> str:
    if best.speedup is None:
        return f"score {best.credit:g}"
    high = f", {best.speedup_high:.2f}" if best.speedup_high is not None else ""
    latency = f", {best.latency_us:.1f} us" if best.latency_us is not None else ""
    return f"{best.speedup:.2f}x [{best.credit:.2f}{high}]{latency}"


def _trouble_words(record: Record) -> str:
    """Say what is wrong with what a search needs, without what a kernel, a model or an endpoint has said."""
    body = record.body
    if isinstance(body, JobsUnserved):
        return f"jobs wait, and there is no {body.role} who can do them"
    if isinstance(body, JobLost):
        passing = "will not pass by itself" if body.permanent else "is tried again"
        return f"the infrastructure lost a job ({body.kind}), which {passing}"
    return ""


log = structlog.get_logger(__name__)


_LONGEST_PLAIN_PATH = 16
"""Characters of an address's path that may well stand elsewhere in a log; longer ones hold a token."""
_PARTING_S = 20.0
"""How long a session that is over waits for the last notices."""
_HURRY_S = 3.0
"""The same for one that is to end now."""


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

    from ksearch_async.follow.webhook import Post  # noqa: PLC0415 - brings an HTTP client, which others need not load

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
