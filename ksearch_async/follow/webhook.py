"""Sends notices to a webhook, one after the other, with a bounded number of tries."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread
import httpx
import msgspec
import structlog

from ksearch_async.follow.notices import Notice

_WAITS_S = (1.0, 4.0, 16.0)
"""Before the second try and those after it."""
_LONGEST_WAIT_S = 60.0
"""That an endpoint may ask for (`Retry-After`)."""
_WAITING = 8
"""Notices that wait, at most."""
_MAY_PASS = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which another try may help."""
_REDIRECTS = (307, 308)
"""With others a client may turn the request into another one."""
_MOST_REDIRECTS = 3

log = structlog.get_logger(__name__)


class Post:
    """Sends notices one after the other, in order."""

    def __init__(self, url: str, secret: str, timeout_s: float) -> None:
        self.empty = anyio.Event()
        """Nothing waits, and nothing more will."""
        self._url = url
        self._secret = secret.encode()
        self._timeout_s = timeout_s
        self._waiting: list[Notice] = []
        self._arrived = anyio.Event()
        self._is_closed = False
        self._sent = 0
        self._dropped = 0

    def put(self, notices: list[Notice]) -> None:
        """Have notices sent; a best that waits gives way to a newer one."""
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
        """Say that no more will come."""
        self._is_closed = True
        self._arrived.set()

    def report(self) -> None:
        """Say in the log how many were sent, and how many were not."""
        self._dropped += len(self._waiting)
        if self._dropped:
            log.warning("notices were not delivered", host=self._host, sent=self._sent, dropped=self._dropped)
        elif self._sent:
            log.info("notices were delivered", host=self._host, sent=self._sent)

    async def deliver(self) -> None:
        """Send what is put, until all is sent and it is closed."""
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
        """Return what went wrong, if something did, and after how many seconds to try again: null, not at all."""
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
                return answer  # what it says is not read


def signature_headers(secret: bytes, body: bytes, timestamp: int) -> Mapping[str, str]:
    """Return the headers by which a receiver knows who sent a body, and when (Unix time)."""
    digest = hmac.new(secret, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"x-ksearch-timestamp": str(timestamp), "x-ksearch-signature": f"sha256={digest}"}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _retry_after_s(answer: httpx.Response) -> float:
    said = answer.headers.get("retry-after", "")
    return float(said) if said.isdecimal() else 0.0
