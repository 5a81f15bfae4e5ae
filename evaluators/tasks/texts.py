"""Reads files of problems: texts, none of them large."""

from __future__ import annotations

from pathlib import Path

from messages.base import ConfigError

_MAX_BYTES = 1 << 20


def read_text(path: Path, called: str) -> str:
    """Return a file's text.

    Args:
        path: of the file.
        called: what messages call it.

    Raises:
        ConfigError: it cannot be read, is no UTF-8 text, or is larger than any problem.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{called} is larger than 1 MiB; is it the right file?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {called}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{called} is not UTF-8 text (byte {error.start})") from error
