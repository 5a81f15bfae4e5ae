"""Notices about a run: which are due, and sending them to a webhook beside the search.

A notice contains figures and our own words: no source, no output of a kernel, no model's text, no error's text.

The body is `Notice`; docs/guides/tracking.md documents its fields. With a secret it is signed: the header
`X-Ksearch-Signature` is `sha256=` and the HMAC-SHA256, in hex, of the header `X-Ksearch-Timestamp`, a dot and the body.
Of several waiting notices of a new best only the latest is sent.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread
import httpx
import msgspec
import structlog

from ksearch_async.follow.choices import SECRET_VARIABLE, URL_VARIABLE, NoticeKind, check_url, kinds_of
from ksearch_async.follow.logs import keep_secret
from ksearch_async.runs.feed import LOOK_S, JournalReader
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.run import Mark, Run, Totals
from ksearch_async.settings.run_config import NotifySettings
from ksearch_async.views.lines import STOP_WORDS
from messages.base import KsearchError
from messages.codec import Record
from messages.events import JobLost, JobsUnserved

_QUIET_S = 600.0
"""Least seconds between two notices of one kind of trouble."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """State of the run, and its best."""

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
    """Id that stays the same when the notice is sent again, so that receivers can recognise duplicates."""
    kind: NoticeKind
    run: str
    task: str
    at: str
    """Time of the event, ISO 8601, UTC."""
    text: str
    """A line for people."""
    figures: Figures
    version: int = 1


class Herald:
    """Folds a run's records and returns the notices that are due. Pure but for the interval between notices."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._run = Run()
        self._told_at: dict[str, float] = {}

    def take(self, record: Record) -> list[Notice]:
        """Return the notices of a record."""
        run = self._run
        was_over, steps = run.finished is not None, len(run.steps)
        run.fold(record)
        if run.started is None:
            return []
        due: list[tuple[NoticeKind, str]] = []
        if run.step is not None and len(run.steps) > steps:
            due.append(("best", f"new best: {_worth_words(run.step.mark)}, round {run.step.mark.round}"))
        if trouble := _trouble_words(record):
            elapsed_s, told_s = run.place.seconds, self._told_at.get(trouble)
            if told_s is None or elapsed_s - told_s >= _QUIET_S:
                self._told_at[trouble] = elapsed_s
                due.append(("trouble", trouble))
        if run.finished is not None and not was_over:
            why = STOP_WORDS.get(run.finished.stopped_by, run.finished.stopped_by)
            found = f"best {_worth_words(run.step.mark)}" if run.step else "nothing found"
            due.append(("finished", f"over after {run.state.rounds} rounds ({why}): {found}"))
        return [
            self._made(kind, f"{kind}-{record.seq}", record.at, words, run.totals)
            for kind, words in due
            if kind in self._kinds
        ]

    def failed(self) -> list[Notice]:
        """Return the notice of a session that ended by our own error or a disk error, for which there is no record."""
        run = self._run
        if run.started is None or run.last_at is None or "trouble" not in self._kinds:
            return []
        totals = Totals(rounds=run.state.rounds, elapsed_s=run.elapsed_s, cost_usd=run.state.cost_usd)
        words = f"the session failed; ksearch resume {run.started.run_id} goes on"
        return [self._made("trouble", f"failed-{run.last_seq}", run.last_at.isoformat(), words, totals)]

    def _made(self, kind: NoticeKind, suffix: str, at: str, words: str, totals: Totals) -> Notice:
        run, best = self._run, self._run.step.mark if self._run.step else None
        run_id, task = (run.started.run_id, run.started.task.name) if run.started else ("", "")
        is_score = best is not None and best.speedup is None
        figures = Figures(
            standing=totals.standing,
            stopped_by=totals.stopped_by,
            rounds=totals.rounds,
            max_rounds=run.settings.budget.max_rounds,
            elapsed_s=round(totals.elapsed_s, 3),
            cost_usd=totals.cost_usd,
            model_calls=totals.calls,
            speedup=best.speedup if best else None,
            speedup_low=best.credit if best and not is_score else None,
            speedup_high=best.speedup_high if best else None,
            latency_us=best.latency_us if best else None,
            score=best.credit if best and is_score else None,
            best_id=best.candidate_id if best else "",
            best_round=best.round if best else 0,
        )
        text = f"{run_id}: {words}"
        return Notice(id=f"{run_id}.{suffix}", kind=kind, run=run_id, task=task, at=at, text=text, figures=figures)


def _worth_words(best: Mark) -> str:
    if best.speedup is None:
        return f"score {best.credit:g}"
    high = f", {best.speedup_high:.2f}" if best.speedup_high is not None else ""
    latency = f", {best.latency_us:.1f} us" if best.latency_us is not None else ""
    return f"{best.speedup:.2f}x [{best.credit:.2f}{high}]{latency}"


def _trouble_words(record: Record) -> str:
    """Return the trouble of a search in words, without any text of a kernel, a model or an endpoint."""
    body = record.body
    if isinstance(body, JobsUnserved):
        return f"jobs wait, and there is no {body.role} who can do them"
    if isinstance(body, JobLost):
        passing = "will not pass by itself" if body.permanent else "is tried again"
        return f"the infrastructure lost a job ({body.kind}), which {passing}"
    return ""


log = structlog.get_logger(__name__)


_LONGEST_PLAIN_PATH = 16
"""Longest path of an address that may appear in a log; longer ones contain a token."""
_PARTING_S = 20.0
"""Seconds that a finished session waits for the last notices."""
_HURRY_S = 3.0
"""The same for a session that has to end now."""


@asynccontextmanager
async def noticed(
    folder: RunFolder, settings: NotifySettings, environment: Mapping[str, str], *, after: int
) -> AsyncIterator[None]:
    """Send notices of a run while this is entered, if a channel is configured.

    Raises (when entered):
        ConfigError: the environment's address is not a valid one.
    """
    url = settings.url or environment.get(URL_VARIABLE)
    if not url:
        yield
        return

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
    def __init__(self, folder: RunFolder, herald: Herald, post: Post, after: int) -> None:
        self.ended = anyio.Event()
        self.has_failed = False
        self._folder = folder
        self._herald = herald
        self._post = post
        self._after = after

    async def follow(self) -> None:
        """Send due notices until the session and the journal have ended."""
        with anyio.CancelScope(shield=True):  # the parent cancels when its patience ends
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


_WAITS_S = (1.0, 4.0, 16.0)
"""Seconds before the second try and those after it."""
_LONGEST_WAIT_S = 60.0
"""Longest wait, in seconds, that an endpoint may request (`Retry-After`)."""
_WAITING = 8
"""Most notices that wait."""
_MAY_PASS = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which another try may help."""
_REDIRECTS = (307, 308)
"""Redirects that are followed; with others a client may turn the request into another one."""
_MOST_REDIRECTS = 3


class Post:
    """Sends notices one after the other, in order."""

    def __init__(self, url: str, secret: str, timeout_s: float) -> None:
        self.empty = anyio.Event()
        """Set when no notice waits and no further one comes."""
        self._url = url
        self._secret = secret.encode()
        self._timeout_s = timeout_s
        self._waiting: list[Notice] = []
        self._arrived = anyio.Event()
        self._is_closed = False
        self._sent = 0
        self._dropped = 0

    def put(self, notices: list[Notice]) -> None:
        """Queue notices. A waiting best is replaced by a newer one."""
        for notice in notices:
            if notice.kind == "best":
                self._waiting = [each for each in self._waiting if each.kind != "best"]
            self._waiting.append(notice)
            if len(self._waiting) > _WAITING:
                del self._waiting[0]
                self._dropped += 1
        if notices:
            self._arrived.set()

    def close(self) -> None:
        """End the queue: no further notices come."""
        self._is_closed = True
        self._arrived.set()

    def report(self) -> None:
        """Log how many were sent, and how many were not."""
        self._dropped += len(self._waiting)
        if self._dropped:
            log.warning("notices were not delivered", host=self._host, sent=self._sent, dropped=self._dropped)
        elif self._sent:
            log.info("notices were delivered", host=self._host, sent=self._sent)

    async def deliver(self) -> None:
        """Send queued notices until all are sent and the queue is closed."""
        async with httpx.AsyncClient(timeout=self._timeout_s, follow_redirects=False) as client:
            while self._waiting or not self._is_closed:
                await self._arrived.wait()
                self._arrived = anyio.Event()
                if self._is_closed:
                    self._arrived.set()
                while self._waiting:
                    await self._send(client, self._waiting[0])
        self.empty.set()

    @property
    def _host(self) -> str:
        return urlsplit(self._url).hostname or ""

    async def _send(self, client: httpx.AsyncClient, notice: Notice) -> None:
        problem = ""
        for wait_s in (*_WAITS_S, None):
            asked_s, problem = await self._tried(client, notice)
            if not problem or asked_s is None or wait_s is None:
                break
            await anyio.sleep(max(wait_s, min(asked_s, _LONGEST_WAIT_S)))
        if notice in self._waiting:  # a newer best may have taken its place
            self._waiting.remove(notice)
        if not problem:
            self._sent += 1
            return
        self._dropped += 1
        log.warning("a notice was not delivered; the run goes on", host=self._host, kind=notice.kind, error=problem)

    async def _tried(self, client: httpx.AsyncClient, notice: Notice) -> tuple[float | None, str]:
        """Return the error, if any, and the seconds until the next try; null: no further try."""
        body, url = msgspec.json.encode(notice), self._url
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                answer = await self._posted(client, url, body, notice.id)
                if answer.is_success:
                    return None, ""
                if not answer.is_redirect:
                    break
                there = urljoin(url, answer.headers.get("location", ""))
                if answer.status_code not in _REDIRECTS or _origin(there) != _origin(self._url):
                    return None, f"HTTP {answer.status_code}: it redirects elsewhere, which is not followed"
                url = there
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return 0.0, type(error).__name__
        asked_s = _retry_after_s(answer) if answer.status_code in _MAY_PASS else None
        return asked_s, f"HTTP {answer.status_code}"

    async def _posted(self, client: httpx.AsyncClient, url: str, body: bytes, notice_id: str) -> httpx.Response:
        headers = {"content-type": "application/json", "user-agent": "ksearch-async", "x-ksearch-delivery": notice_id}
        if self._secret:
            headers |= signature_headers(self._secret, body, int(time.time()))
        with anyio.fail_after(self._timeout_s * 2):  # an answer may trickle in
            async with client.stream("POST", url, content=body, headers=headers) as answer:
                return answer  # its output is not read


def signature_headers(secret: bytes, body: bytes, timestamp: int) -> Mapping[str, str]:
    """Return the headers by which a receiver can verify the sender and the time (Unix time) of a body."""
    digest = hmac.new(secret, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"x-ksearch-timestamp": str(timestamp), "x-ksearch-signature": f"sha256={digest}"}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _retry_after_s(answer: httpx.Response) -> float:
    said = answer.headers.get("retry-after", "")
    return float(said) if said.isdecimal() else 0.0
