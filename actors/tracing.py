"""Traces of jobs, from the planner's decision through bus and worker to the result and its consequences.

One trace covers one attempt, or one question to the planner's model; it links to its cause. Trace ids travel as W3C
`traceparent` headers. Tracing is off unless the process was started inside `traced_by`; while it is off, every function
does nothing and OpenTelemetry (extra `tracing`) is not imported. Headers come from peers and may be invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, TypeAlias

from actors.bus.base import NO_HEADERS

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Attribute: TypeAlias = str | int | float
Side: TypeAlias = Literal["internal", "producer", "consumer"]
"""Role in a message: the sender, the receiver that works on it, or neither (`internal`)."""

_tracer: ContextVar[Tracer | None] = ContextVar("tracer", default=None)


@contextmanager
def traced_by(tracer: Tracer) -> Iterator[None]:
    """Create spans with this tracer, in this task and all tasks that it starts."""
    token = _tracer.set(tracer)
    try:
        yield
    finally:
        _tracer.reset(token)


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Attribute],
    *,
    side: Side = "internal",
    headers: Mapping[str, str] = NO_HEADERS,
    is_first: bool = False,
) -> Iterator[None]:
    """Trace the block; errors are recorded and re-raised.

    Args:
        name: `write`, `build`, `evaluate`, …
        attributes: become `ksearch.<name>`; empty ones are omitted.
        side: sender or receiver of a message, or neither.
        headers: headers of the message that requested the work; the span continues their trace.
        is_first: begin a new trace, linked to the current one.
    """
    tracer = _tracer.get()
    if tracer is None:
        yield
        return
    from opentelemetry.context import Context  # noqa: PLC0415 - only where it is switched on
    from opentelemetry.trace import Link, SpanKind, get_current_span  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    cause = get_current_span().get_span_context()
    context = TraceContextTextMapPropagator().extract(headers) if headers else None
    with tracer.start_as_current_span(
        name,
        context=Context() if is_first else context,
        kind=SpanKind[side.upper()],
        links=[Link(cause)] if is_first and cause.is_valid else [],
        attributes={f"ksearch.{key}": value for key, value in attributes.items() if value != ""},
    ):
        yield


def trace_headers() -> Mapping[str, str]:
    """Return headers that propagate the current trace; empty if tracing is off."""
    if _tracer.get() is None:
        return NO_HEADERS
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def note(**attributes: Attribute) -> None:
    """Add attributes to the current span, if any."""
    if _tracer.get() is None:
        return
    from opentelemetry.trace import get_current_span  # noqa: PLC0415

    get_current_span().set_attributes({f"ksearch.{key}": value for key, value in attributes.items()})


def trace_id() -> str:
    """Return the current trace's id in hex, or an empty string."""
    if _tracer.get() is None:
        return ""
    from opentelemetry.trace import format_trace_id, get_current_span  # noqa: PLC0415

    context = get_current_span().get_span_context()
    return format_trace_id(context.trace_id) if context.is_valid else ""
