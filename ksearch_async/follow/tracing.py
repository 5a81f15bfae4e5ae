"""Switches tracing on: `KSEARCH_TRACING=1`, or `OTEL_EXPORTER_OTLP_ENDPOINT` if OpenTelemetry is installed.

Everything else (endpoint, headers, sampling, resource attributes) is configured by OpenTelemetry's own variables, which
its SDK reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from actors.tracing import traced_by
from ksearch_async import __version__
from ksearch_async.errors import refusal

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@contextmanager
def tracing(environment: Mapping[str, str], *, role: str) -> Iterator[None]:
    """Trace the work in this context, if the environment asks for it. Open spans are sent at the end.

    Args:
        environment: `KSEARCH_TRACING`, else `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
        role: role of the process; the service's name is `ksearch-<role>` unless `OTEL_SERVICE_NAME` sets another.
    """
    if not _is_wanted(environment):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    name = environment.get("OTEL_SERVICE_NAME") or f"ksearch-{role}"
    said = {"service.name": name, "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(said))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        with traced_by(provider.get_tracer("ksearch")):
            yield
    finally:
        provider.shutdown()


def _is_wanted(environment: Mapping[str, str]) -> bool:
    """Return True if tracing is configured.

    Raises:
        ConfigError: see `tracing`.
    """
    asked = environment.get("KSEARCH_TRACING", "").strip().lower()
    if asked in _OFF:
        return False
    if asked and asked not in _ON:
        raise refusal(f"KSEARCH_TRACING={environment['KSEARCH_TRACING']!r} is neither 1 nor 0")
    is_installed = all(_is_there(module) for module in _NEEDED)
    if asked and not is_installed:
        raise refusal("KSEARCH_TRACING needs OpenTelemetry", "pip install 'ksearch-async[tracing]'")
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return bool(asked) or (is_installed and any(environment.get(name) for name in names))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
