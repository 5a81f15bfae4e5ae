"""Traces are sent where OpenTelemetry's variables say, if they are asked for, and not otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from actors.tracing import span, trace_id
from ksearch_async.follow import tracing as switch
from ksearch_async.follow.tracing import tracing
from messages.base import ConfigError


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An OTLP collector: its address, and what it was sent."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_spans_are_sent_to_the_collector_at_the_end(
    collector: tuple[str, list[tuple[str, bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("NO_PROXY", "*")
    with tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": address}, role="coder"), span("write", {"job": "r1-w3"}):
        assert trace_id()
    ((path, body),) = received
    assert path == "/v1/traces"
    for word in (b"ksearch-coder", b"write", b"ksearch.job", b"r1-w3"):
        assert word in body


@pytest.mark.parametrize(
    "environment",
    [{}, {"KSEARCH_TRACING": "0", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, {"KSEARCH_TRACING": ""}],
    ids=str,
)
def test_without_being_asked_nothing_is_traced(environment: dict[str, str]) -> None:
    with tracing(environment, role="coder"), span("write", {}):
        assert not trace_id()


def test_a_value_that_is_neither_on_nor_off_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match="KSEARCH_TRACING='maybe' is neither 1 nor 0"),
        tracing({"KSEARCH_TRACING": "maybe"}, role="coder"),
    ):
        pass


def test_without_the_extra_it_is_refused_where_it_is_asked_for_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as refused, tracing({"KSEARCH_TRACING": "1"}, role="coder"):
        pass
    assert refused.value.__notes__ == ["pip install 'ksearch-async[tracing]'"]
    # Such a variable may be there for other programs.
    with tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, role="coder"), span("write", {}):
        assert not trace_id()
