"""What people use: the command line, configuration, run folders, and the public Python interface.

Third parties import from here only. Names are looked up when first used, so that `import ksearch_async` stays instant
and never loads torch, openai or the model gateway.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ksearch_async.config import ModelSettings, RunConfig, WorkerSettings, resolve_config
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

__version__ = version("ksearch-async")

_HOMES = {
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
    "KsearchError",
    "ModelError",
    "ModelSettings",
    "ProtocolError",
    "RunConfig",
    "SearchSettings",
    "Selection",
    "WorkerSettings",
    "__version__",
    "resolve_config",
]


def __getattr__(name: str) -> object:
    """Load a public name from where it is defined."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    return value
