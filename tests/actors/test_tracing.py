"""Traces: nothing unless switched on; then one per attempt, from the planner's question to what follows its result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from actors.tracing import note, span, trace_headers, trace_id, traced_by
from messages.settings import Budget, SearchSettings
from tests.actors.planner.rig import Rig, scripted


@contextmanager
def recorded() -> Iterator[InMemorySpanExporter]:
    """Have what is done inside traced into memory."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with traced_by(provider.get_tracer("test")):
        yield exporter
    provider.shutdown()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded() as exporter:
        yield exporter


def ids(found: ReadableSpan) -> tuple[int, int]:
    context = found.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def said(found: ReadableSpan, name: str) -> object:
    return (found.attributes or {}).get(f"ksearch.{name}")


def test_without_a_tracer_nothing_is_traced_and_nothing_imported() -> None:
    script = (
        "import sys\n"
        "from actors.tracing import note, span, trace_headers, trace_id\n"
        "with span('write', {'job': 'j1'}, headers={'traceparent': 'x'}, is_first=True):\n"
        "    note(outcome='done')\n"
        "    assert dict(trace_headers()) == {} and trace_id() == ''\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_message_carries_the_trace_to_who_works_on_it(spans: InMemorySpanExporter) -> None:
    with span("ask coder", {"job": "j1"}, side="producer", is_first=True):
        headers = trace_headers()
    with span("write", {"job": "j1", "worker": ""}, side="consumer", headers=headers):
        note(outcome="done")
        trace = trace_id()
    asked, wrote = spans.get_finished_spans()
    assert ids(asked)[0] == ids(wrote)[0] == int(trace, 16)
    assert wrote.parent is not None
    assert wrote.parent.span_id == ids(asked)[1]
    assert (asked.kind, wrote.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(wrote.attributes or {}) == {"ksearch.job": "j1", "ksearch.outcome": "done"}


def test_headers_that_are_nonsense_begin_a_trace_of_their_own(spans: InMemorySpanExporter) -> None:
    with span("write", {}, headers={"traceparent": "nonsense", "tracestate": "\xff"}):
        pass
    (found,) = spans.get_finished_spans()
    assert found.parent is None


def test_what_is_raised_is_noted_and_goes_on(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no"), span("build", {}):
        raise ValueError("no")
    (found,) = spans.get_finished_spans()
    assert not found.status.is_ok
    assert [event.name for event in found.events] == ["exception"]


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_an_attempt_is_one_trace_from_the_planners_question_to_the_verdict(spans: InMemorySpanExporter) -> None:
    rig = Rig(SearchSettings(branches=2, budget=Budget(max_rounds=6)))
    planner, coder = scripted()
    await rig.search(planner, coder_model=coder, evaluation_s=1.0)
    await anyio.lowlevel.checkpoint()
    assert_attempts_are_traces(spans.get_finished_spans(), rounds=6)


def assert_attempts_are_traces(spans: Sequence[ReadableSpan], *, rounds: int) -> None:
    """Each evaluation's parents lead over the planner, the builder and the coder to the planner's question.

    A confirmation has a trace of its own.
    """
    known = {ids(found): found for found in spans}
    ways = [[found] for found in spans if found.name == "evaluate"]
    for way in ways:
        while (parent := way[-1].parent) is not None:
            way.append(known[parent.trace_id, parent.span_id])
    confirmed = [way for way in ways if len(way) == 2]
    assert all([each.name for each in way] == ["evaluate", "ask evaluator"] for way in confirmed)
    assert confirmed
    assert len(ways) - len(confirmed) == rounds
    for way in ways:
        if way in confirmed:
            continue
        assert [each.name for each in way] == [
            "evaluate", "ask evaluator", "decide", "build", "ask builder", "decide", "write", "ask coder",
        ]  # fmt: skip
        assert len({ids(each)[0] for each in way}) == 1
        assert all(said(each, "run") == "rig" for each in way)
        outcomes = {each.name: said(each, "outcome") for each in way if each.kind is SpanKind.CONSUMER}
        assert outcomes.pop("evaluate") in ("done", None)  # the run may end before its last job is acknowledged
        assert outcomes == {"write": "done", "build": "done"}
    first = next(found for found in spans if found.name == "ask coder")
    assert first.links or first.parent is None
    assert any(found.name == "plan" and found.parent is None for found in spans)
