"""What people use: the command line, configuration, run folders, and the public Python interface.

Third parties import from here only. Names are looked up when first used, so that `import ksearch_async` stays instant
and never loads torch, openai or the model gateway.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ksearch_async.api import (
        FoundKernel,
        FoundProgram,
        RunSettings,
        SearchResult,
        SessionSettings,
        load_result,
        resume,
        run,
        search,
    )
    from ksearch_async.config import ModelSettings, RunConfig, WorkerSettings, resolve_config
    from ksearch_async.launch import StopSwitch
    from messages.base import Usage
    from messages.errors import (
        BoundaryError,
        BusError,
        ConfigError,
        EvaluatorError,
        KsearchError,
        ModelError,
        ProtocolError,
    )
    from messages.settings import Budget, SearchSettings, Selection
    from messages.tasks import SourceFile

__version__: str
"""Read from the installed package when first asked for: the reader takes a tenth of the start of `ksearch --help`."""

_HOMES = {
    "FoundKernel": "ksearch_async.api",
    "FoundProgram": "ksearch_async.api",
    "RunSettings": "ksearch_async.api",
    "SearchResult": "ksearch_async.api",
    "SessionSettings": "ksearch_async.api",
    "load_result": "ksearch_async.api",
    "resume": "ksearch_async.api",
    "run": "ksearch_async.api",
    "search": "ksearch_async.api",
    "StopSwitch": "ksearch_async.launch",
    "Usage": "messages.base",
    "SourceFile": "messages.tasks",
    "ModelSettings": "ksearch_async.config",
    "RunConfig": "ksearch_async.config",
    "WorkerSettings": "ksearch_async.config",
    "resolve_config": "ksearch_async.config",
    "BoundaryError": "messages.errors",
    "BusError": "messages.errors",
    "ConfigError": "messages.errors",
    "EvaluatorError": "messages.errors",
    "KsearchError": "messages.errors",
    "ModelError": "messages.errors",
    "ProtocolError": "messages.errors",
    "Budget": "messages.settings",
    "SearchSettings": "messages.settings",
    "Selection": "messages.settings",
}

__all__ = [
    "BoundaryError",
    "Budget",
    "BusError",
    "ConfigError",
    "EvaluatorError",
    "FoundKernel",
    "FoundProgram",
    "KsearchError",
    "ModelError",
    "ModelSettings",
    "ProtocolError",
    "RunConfig",
    "RunSettings",
    "SearchResult",
    "SearchSettings",
    "Selection",
    "SessionSettings",
    "SourceFile",
    "StopSwitch",
    "Usage",
    "WorkerSettings",
    "__version__",
    "load_result",
    "resolve_config",
    "resume",
    "run",
    "search",
]


def __getattr__(name: str) -> object:
    """Load a public name from where it is defined."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - see there

        return version("ksearch-async")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    return value
