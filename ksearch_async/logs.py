"""Where log lines go: all of them to the run's log as JSON, warnings to stderr for people."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from ksearch_async.refusals import refusal

_SHARED: list[structlog.types.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def configure_logs(file: Path | None = None, *, say: Callable[[str], None] | None = None) -> None:
    """Send our lines, and those of libraries that use `logging`, to the console (warnings) and to a file (all).

    Args:
        file: takes all lines, as JSON.
        say: takes warnings, a line each; None: stderr does.

    Raises:
        messages.errors.ConfigError: the file cannot be opened.
    """
    console = logging.StreamHandler() if say is None else _Said(say)
    console.setLevel(logging.WARNING)
    console.setFormatter(_formatter(_for_people))
    handlers: list[logging.Handler] = [console]
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


def pass_to_logging() -> None:
    """Have our lines go to `logging`, unless the program has said where structlog's go: they would go to stdout."""
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
    """Hands lines to whoever shows them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over a line."""
        self._say(self.format(record))


class _LogFile(logging.FileHandler):
    """Goes without lines that cannot be written: the journal says what failed, a full disk must not fill the screen."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the line."""

    def close(self) -> None:
        """Close the file, and drop what could not be written."""
        with suppress(OSError):
            super().close()


def _opened(file: Path) -> logging.FileHandler:
    try:
        return _LogFile(file, encoding="utf-8")
    except OSError as error:
        raise refusal(f"cannot write {str(file)!r}: {error.strerror}") from error


def _formatter(renderer: structlog.types.Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )


def _for_people(_logger: object, _method: str, event: structlog.types.EventDict) -> str:
    """Render `warning: what happened (key=value, …)` on one line; the exception's text stays in the file."""
    level = event.pop("level", "warning")
    said = event.pop("event", "")
    details = ", ".join(f"{key}={value!r}" for key, value in event.items() if key not in _ONLY_IN_FILE)
    return f"{level}: {said}{f' ({details})' if details else ''}"


_ONLY_IN_FILE = frozenset({"timestamp", "logger", "exception"})
