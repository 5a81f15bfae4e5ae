"""The interfaces for people: the command line, configuration, run folders, and the public Python interface.

Third parties import from here only. Names are looked up when first used, so that `import ksearch_async` stays instant
and never loads torch, openai or the model gateway.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluators.tasks.own.document import Input
    from ksearch_async.api import (
        FoundKernel,
        FoundProgram,
        SearchResult,
        load_result,
        resume,
        run,
        search,
    )
    from ksearch_async.evaluation.judging import (
        Judge,
        evaluate,
        evaluate_many,
        evaluate_many_sync,
        evaluate_sync,
        open_judge,
    )
    from ksearch_async.evaluation.settings import Evaluation, EvaluationSettings
    from ksearch_async.evaluation.tasks import ModuleTask, OwnTask, task, task_from_module
    from ksearch_async.runs.resume import StopSwitch
    from ksearch_async.settings.options import RunSettings, SessionSettings
    from ksearch_async.settings.resolve import resolve_config
    from ksearch_async.settings.run_config import ModelSettings, RunConfig, WorkerSettings
    from messages.base import (
        BoundaryError,
        BusError,
        ConfigError,
        EvaluatorError,
        KsearchError,
        ModelError,
        ProtocolError,
        Usage,
    )
    from messages.settings import Budget, SearchSettings, Selection
    from messages.tasks import SourceFile
    from messages.verdicts import Measured, Verdict

__version__ = "0.1.0"
"""The only place with the version: packages are built with it, and source trees that are not installed have it, too."""

_HOMES = {
    "FoundKernel": "ksearch_async.api",
    "FoundProgram": "ksearch_async.api",
    "RunSettings": "ksearch_async.settings.options",
    "SearchResult": "ksearch_async.api",
    "SessionSettings": "ksearch_async.settings.options",
    "load_result": "ksearch_async.api",
    "resume": "ksearch_async.api",
    "run": "ksearch_async.api",
    "search": "ksearch_async.api",
    "Evaluation": "ksearch_async.evaluation.settings",
    "EvaluationSettings": "ksearch_async.evaluation.settings",
    "Judge": "ksearch_async.evaluation.judging",
    "evaluate": "ksearch_async.evaluation.judging",
    "evaluate_many": "ksearch_async.evaluation.judging",
    "evaluate_many_sync": "ksearch_async.evaluation.judging",
    "evaluate_sync": "ksearch_async.evaluation.judging",
    "open_judge": "ksearch_async.evaluation.judging",
    "Input": "evaluators.tasks.own.document",
    "ModuleTask": "ksearch_async.evaluation.tasks",
    "OwnTask": "ksearch_async.evaluation.tasks",
    "task": "ksearch_async.evaluation.tasks",
    "task_from_module": "ksearch_async.evaluation.tasks",
    "Measured": "messages.verdicts",
    "Verdict": "messages.verdicts",
    "StopSwitch": "ksearch_async.runs.resume",
    "Usage": "messages.base",
    "SourceFile": "messages.tasks",
    "ModelSettings": "ksearch_async.settings.run_config",
    "RunConfig": "ksearch_async.settings.run_config",
    "WorkerSettings": "ksearch_async.settings.run_config",
    "resolve_config": "ksearch_async.settings.resolve",
    "BoundaryError": "messages.base",
    "BusError": "messages.base",
    "ConfigError": "messages.base",
    "EvaluatorError": "messages.base",
    "KsearchError": "messages.base",
    "ModelError": "messages.base",
    "ProtocolError": "messages.base",
    "Budget": "messages.settings",
    "SearchSettings": "messages.settings",
    "Selection": "messages.settings",
}

__all__ = [
    "BoundaryError",
    "Budget",
    "BusError",
    "ConfigError",
    "Evaluation",
    "EvaluationSettings",
    "EvaluatorError",
    "FoundKernel",
    "FoundProgram",
    "Input",
    "Judge",
    "KsearchError",
    "Measured",
    "ModelError",
    "ModelSettings",
    "ModuleTask",
    "OwnTask",
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
    "Verdict",
    "WorkerSettings",
    "__version__",
    "evaluate",
    "evaluate_many",
    "evaluate_many_sync",
    "evaluate_sync",
    "load_result",
    "open_judge",
    "resolve_config",
    "resume",
    "run",
    "search",
    "task",
    "task_from_module",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    return value
