"""Access to the dashboard: checks before a request reaches it, and headers that limit what a browser may do.

Covered: other web pages in the same browser (origin, token, no cookies), names that are made to point here (DNS
rebinding: the `Host` header), scripts in shown texts (content security policy), other hosts (a token). Not covered:
other users of this host may read runs, unless a token is set; traffic is not encrypted.
"""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK_NAMES = frozenset({"localhost"})


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Access rights."""

    token: str
    """Token that lets a client give orders."""
    reads_need_token: bool = False
    """True if reading needs the token, too."""
    names: frozenset[str] = frozenset()
    """Names of this host that browsers may use, besides `localhost` and addresses."""


class Guard:
    """An ASGI application in front of another one."""

    def __init__(self, app: ASGIApp, terms: Terms) -> None:
        self._app = app
        self._terms = terms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is refused; pass on all others."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store" if scope["path"].startswith("/api/") else "no-cache")
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._is_ours(headers.get("host", "")):
            return problem(421, "this host is not known by that name", "open the page by the address that was printed")
        is_order = scope["method"] not in ("GET", "HEAD")
        if is_order and not _is_same_origin(headers):
            return problem(403, "another page asked for this", "orders are given from the dashboard's own page")
        is_asking = scope["path"].startswith("/api/")
        if is_asking and (is_order or self._terms.reads_need_token) and not has_token(headers, self._terms.token):
            return problem(401, "the token is missing or wrong", "open the page by the address that was printed")
        return None

    def _is_ours(self, host: str) -> bool:
        """Return True if a `Host` header names this host. A name can be made to point elsewhere, an address cannot."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in _LOOPBACK_NAMES or name in self._terms.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def has_token(headers: Headers, token: str) -> bool:
    """Return True if a request carries the token, in the same time for a right and a wrong one."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def problem(status: int, error: str, hint: str = "") -> Response:
    """Return an answer with an error."""
    said = {"error": error, "hint": hint} if hint else {"error": error}
    return Response(msgspec.json.encode(said), status_code=status, media_type="application/json")


def _is_same_origin(headers: Headers) -> bool:
    """Return True if a request comes from our own page, or from no page (a user's script)."""
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")
