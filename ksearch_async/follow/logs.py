"""Log lines: JSON to the run's log, warnings to stderr, secrets masked.

The first defence is that no code puts a secret into a line; see `actors.llm.transport` and
`ksearch_async.fleet.access`.

Lines carry the ids of their subject: `run`, `worker`, `job`, `attempt`; and `trace` if jobs are traced.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import structlog

from actors.llm.base import HIDDEN, SHORTEST
from actors.tracing import trace_id
from evaluators.process.printed import printable
from ksearch_async.errors import refusal

_SEED = re.compile(r"\bS[ACNOUX][A-Z2-7]{56}\b")
"""The seed of any nkey: a type letter behind an S, base 32."""

_known: set[str] = set()


def keep_secret(*secrets: str | None) -> None:
    """Mask these texts in all log lines from now on, quoted or not.

    Empty and short texts are ignored: masking them would fill lines with holes, which reveal more than they hide.
    """
    for secret in secrets:
        if secret is not None and len(secret) >= SHORTEST:
            for text in (secret, repr(secret)[1:-1], repr(secret.encode())[2:-1]):
                _known.update((text, json.dumps(text)[1:-1]))


def without_secrets(line: str) -> str:
    """Return a line with `***` in place of secrets."""
    for secret in sorted(_known, key=len, reverse=True):
        line = line.replace(secret, HIDDEN)
    return _SEED.sub(HIDDEN, line)


Console: TypeAlias = Literal["warnings", "text", "json"]
"""Lines on stderr: warnings only, beside a search's view; or all our lines and libraries' warnings, as text or as one
JSON object each."""

_OURS = ("ksearch_async", "actors", "evaluators", "messages")


def _with_trace(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    trace = trace_id()
    if trace:
        event["trace"] = trace
    return event


_SHARED: list[structlog.types.Processor] = [
    structlog.contextvars.merge_contextvars,
    _with_trace,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def console_of(environment: Mapping[str, str], *, as_json: bool) -> Console:
    """Return the form of a node's stderr: JSON if `--log-json` or `KSEARCH_LOG_FORMAT=json` is set, else text.

    Raises:
        ConfigError: the variable has another value.
    """
    named = environment.get("KSEARCH_LOG_FORMAT") or "text"
    if named not in ("text", "json"):
        raise refusal(f"KSEARCH_LOG_FORMAT={named!r} is not known", "it is text or json")
    return "json" if as_json or named == "json" else "text"


def configure_logs(
    file: Path | None = None, *, say: Callable[[str], None] | None = None, console: Console = "warnings"
) -> None:
    """Send our lines, and those of libraries that use `logging`, to the console, and all of them to a file.

    Args:
        file: receives all lines, as JSON.
        say: called with each line for the console; None: they go to stderr.
        console: selection and form of the console's lines.
    """
    handlers: list[logging.Handler] = [_console(say, console)]
    if file is not None:
        to_file = _opened(file)
        to_file.setFormatter(_formatter(structlog.processors.JSONRenderer()))
        handlers.append(to_file)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _console(say: Callable[[str], None] | None, console: Console) -> logging.Handler:
    handler = logging.StreamHandler() if say is None else _Said(say)
    if console == "warnings":
        handler.setLevel(logging.WARNING)
        handler.setFormatter(_formatter(_for_people))
        return handler
    handler.addFilter(lambda line: line.levelno >= logging.WARNING or line.name.split(".")[0] in _OURS)
    handler.setFormatter(_formatter(structlog.processors.JSONRenderer() if console == "json" else _with_time))
    return handler


def pass_to_logging() -> None:
    """Send our lines to `logging`, unless the program has configured structlog; they would go to stdout otherwise."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.render_to_log_kwargs,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


class _Said(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over a line."""
        self._say(self.format(record))


class _LogFile(logging.FileHandler):
    """Drops lines that cannot be written: the journal reports failures, and a full disk must not fill the screen."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the line."""

    def close(self) -> None:
        """Close the file, and drop lines that could not be written."""
        with suppress(OSError):
            super().close()


def _opened(file: Path) -> logging.FileHandler:
    try:
        return _LogFile(file, encoding="utf-8")
    except OSError as error:
        raise refusal(f"cannot write {str(file)!r}: {error.strerror}") from error


class _Discreet(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        """Render a line."""
        return without_secrets(super().format(record))


def _formatter(renderer: structlog.types.Processor) -> logging.Formatter:
    return _Discreet(
        foreign_pre_chain=_SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )


def _with_time(logger: object, method: str, event: structlog.types.EventDict) -> str:
    """Render a line for later readers, with its exception's text below it."""
    at, exception = event.get("timestamp", ""), event.get("exception", "")
    return f"{at[:19]}Z {_for_people(logger, method, event)}" + (f"\n{printable(exception)}" if exception else "")


def _for_people(_logger: object, _method: str, event: structlog.types.EventDict) -> str:
    """Render `warning: what happened (key=value, …)` on one line; the exception's text stays in the file."""
    level = event.pop("level", "warning")
    said = event.pop("event", "")
    details = ", ".join(f"{key}={value!r}" for key, value in event.items() if key not in _ONLY_IN_FILE)
    return printable(f"{level}: {said}{f' ({details})' if details else ''}").replace("\n", " ")


_ONLY_IN_FILE = frozenset({"timestamp", "logger", "exception"})
