"""Finds a task by bundled name or by path. Reads and parses; runs nothing of the problem and imports no torch."""

from __future__ import annotations

import difflib
from pathlib import Path

from evaluators.tasks import kernelbench
from messages.errors import ConfigError
from messages.tasks import TaskSpec

SIZES = ("cpu", "gpu")
"""Of each bundled problem: shapes that a CPU, or a GPU, takes about a millisecond for."""

_PROBLEMS = Path(__file__).parent / "problems"
_MAX_BYTES = 1 << 20
_DEFAULT_SIZE = 'SIZE = "cpu"\n'


def bundled_tasks() -> tuple[str, ...]:
    """Return the names of the problems that come with the package, sorted."""
    return tuple(sorted(path.stem for path in _PROBLEMS.glob("*.py")))


def is_bundled(name: str) -> bool:
    """Say whether `name` is a bundled problem's, with or without a size: `NAME`, `NAME:gpu`."""
    problem, colon, size = name.partition(":")
    return problem in bundled_tasks() and (not colon or size in SIZES)


def load_task(name_or_path: str) -> TaskSpec:
    """Return the task of a bundled name or of a path to a problem file in KernelBench's format.

    Args:
        name_or_path: `NAME` is the bundled problem in its CPU size, `NAME:gpu` in its GPU size.

    Raises:
        ConfigError: there is no such problem, the file cannot be read, or it is no problem file.
    """
    if is_bundled(name_or_path):
        return _bundled(name_or_path)
    if name_or_path.endswith(".py") or "/" in name_or_path:
        path = Path(name_or_path).expanduser()
    else:
        raise ConfigError(_say_unknown(name_or_path))
    text = _read(path, name_or_path)
    kernelbench.check_problem(text, name_or_path)
    return TaskSpec(name=path.stem, source="kernelbench", text=text)


def _bundled(name: str) -> TaskSpec:
    problem, _, size = name.partition(":")
    text = _read(_PROBLEMS / f"{problem}.py", name)
    if size and size != SIZES[0]:
        text = text.replace(_DEFAULT_SIZE, f'SIZE = "{size}"\n')
        problem = f"{problem}:{size}"
    return TaskSpec(name=problem, source="kernelbench", text=text)


def _say_unknown(name: str) -> str:
    known = bundled_tasks()
    problem, _, size = name.partition(":")
    if problem in known:
        return f"problem {problem!r} has no size {size!r} (there are: {', '.join(SIZES)})"
    close = difflib.get_close_matches(name, known, n=1)
    suggestion = f"; did you mean {close[0]!r}?" if close else ""
    return (
        f"unknown problem {name!r}{suggestion} "
        f"(bundled: {', '.join(known)}; or give the path of a problem file that ends in .py)"
    )


def _read(path: Path, shown: str) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"problem file {shown!r} is larger than 1 MiB; is it the right file?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read problem file {shown!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"problem file {shown!r} is not UTF-8 text (byte {error.start})") from error
