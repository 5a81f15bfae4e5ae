"""`ksearch doctor --model`: asks an endpoint what it supports, shows and remembers it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio

from actors.llm.probe import Probe, probe_endpoint
from ksearch_async.cli import exits
from ksearch_async.follow.logs import configure_logs
from ksearch_async.settings.models import Remembered, api_key, dialect_of, remember
from ksearch_async.settings.run_config import ModelSettings
from ksearch_async.views.terminal import note, put, put_json

_TIMEOUT_S = 60.0
_NAME_WIDTH = 18


def probe_model(name: str, base_url: str | None, *, as_json: bool) -> int:
    """Ask a model's endpoint what it can do; return the exit code."""
    dialect_of(ModelSettings(kind="chat", name=name, base_url=base_url), os.environ)
    if not as_json:
        where = base_url or "the default endpoint of the openai package"
        note(f"asking {name} at {where} some small questions, each for {_TIMEOUT_S:g} s at most")
    configure_logs(say=lambda _: None)  # failures are in the table
    ask = partial(probe_endpoint, model=name, base_url=base_url, api_key=api_key(os.environ), timeout_s=_TIMEOUT_S)
    probe = anyio.run(ask)
    works = bool(probe.capabilities.dialects)
    path = None
    if works:
        today = datetime.now(UTC).date().isoformat()
        path = remember(os.environ, Remembered(capabilities=probe.capabilities, probed_on=today))
    if as_json:
        put_json({"works": works, "remembered": str(path) if path else None, "probe": probe})
    else:
        for line in _lines(probe, path):
            put(line)
    return exits.FOUND if works else exits.INFRASTRUCTURE


def _lines(probe: Probe, path: Path | None) -> Iterator[str]:
    for finding in probe.findings:
        yield f"{finding.state:<8} {finding.name:<{_NAME_WIDTH}} {finding.detail}".rstrip()
    usage = probe.usage
    tokens = f"{usage.prompt_tokens} tokens of prompts, {usage.completion_tokens} of answers"
    yield f"asked    {probe.questions} questions, {tokens}{' (estimated in part)' if usage.estimated_calls else ''}"
    yield f"kept     {path}" if path else "kept     nothing: the endpoint cannot be used like this"
