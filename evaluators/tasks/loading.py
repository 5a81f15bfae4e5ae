"""Finds a task by bundled name, path or source. Reads and parses; runs nothing of the problem, imports no torch."""

from __future__ import annotations

import difflib
from pathlib import Path

from evaluators.tasks import kernelbench, texts
from evaluators.tasks.selectors import Selector, parse_selector
from evaluators.tasks.sources import READERS, Reader
from evaluators.tasks.workloads import choose, read_workloads, selections, text_with
from messages.base import ConfigError
from messages.tasks import TaskSpec, Workload

DEFAULT_SIZE = "cpu"
"""Workload of a bundled problem that is meant where none is named: shapes that a CPU takes about a millisecond for."""

_PROBLEMS = Path(__file__).parent / "problems"


def bundled_tasks() -> tuple[str, ...]:
    """Return the names of the problems that come with the package, sorted."""
    return tuple(sorted(path.stem for path in _PROBLEMS.glob("*.py")))


def is_bundled(name: str) -> bool:
    """Say whether `name` is a bundled problem's, with or without workloads: `NAME`, `NAME:gpu`."""
    problem, colon, selection = name.partition(":")
    if problem not in bundled_tasks():
        return False
    return not colon or all(word.strip() in sizes_of(problem) for word in selection.split(","))


def sizes_of(problem: str) -> tuple[str, ...]:
    """Return what may stand behind the colon of a bundled problem: groups of workloads, and workloads."""
    return selections(read_workloads(_read(_PROBLEMS / f"{problem}.py", problem), problem))


def workloads_of(problem: str) -> tuple[Workload, ...]:
    """Return all workloads that a bundled problem names and shows."""
    text = _read(_PROBLEMS / f"{problem}.py", problem)
    return tuple(workload for workload in read_workloads(text, problem) if not workload.hidden)


def load_task(name_or_path: str) -> TaskSpec:
    """Return the task of a bundled name, of a path, or of a source.

    Args:
        name_or_path: `NAME` is the bundled problem in its CPU size, `NAME:gpu` in its GPU size, `NAME:shapes` with all
            workloads of that group. A path to a file in KernelBench's format stands for all workloads of the file,
            `FILE.py:short,long` for some. `SOURCE:…` is looked for by that source (`sources.py`), and so is a path
            that only one of them recognizes.

    Raises:
        ConfigError: there is no such problem, the file cannot be read, or it is no problem file.
    """
    problem, _, selection = name_or_path.partition(":")
    if problem in bundled_tasks():
        return _task(_PROBLEMS / f"{problem}.py", problem, selection or DEFAULT_SIZE, selection, name_or_path)
    asked = parse_selector(name_or_path)
    if (found := _reader_of(asked)) is not None:
        return found[0].read_task(found[1])
    if asked.path is not None and asked.path.is_dir():
        error = ConfigError(f"cannot read a task from folder {str(asked.path)!r}: there is no task.toml in it")
        error.add_note("name the problem file that is meant, or have a folder written: ksearch new-task NAME")
        raise error
    if not name_or_path.endswith(".py") and "/" not in problem and not problem.endswith(".py"):
        raise ConfigError(_say_unknown(name_or_path))
    path, selection = split_path(name_or_path)
    return _task(path, path.stem, selection, selection, name_or_path)


def names_source(name: str) -> bool:
    """Say whether one of the sources would look for this task."""
    return not is_bundled(name) and _reader_of(parse_selector(name)) is not None


def _reader_of(asked: Selector) -> tuple[Reader, str] | None:
    """Return who reads a task, and what it is to look for; None: no source does."""
    if asked.source in READERS:
        return READERS[asked.source], asked.within
    if asked.source or asked.path is None:
        return None
    path = asked.path
    return next(((reader, asked.within) for reader in READERS.values() if reader.recognizes(path)), None)


def split_path(path: str) -> tuple[Path, str]:
    """Return a problem file and the workloads that are named behind it: `FILE.py:short,long`; or none."""
    whole = Path(path).expanduser()
    if whole.exists() or ".py:" not in path:
        return whole, ""
    before, _, selection = path.rpartition(".py:")
    return Path(f"{before}.py").expanduser(), selection


def _task(path: Path, name: str, selection: str, told: str, shown: str) -> TaskSpec:
    """Return the task of a file with the workloads of a selection; an empty one means all."""
    text = _read(path, shown)
    kernelbench.check_problem(text, shown)
    workloads = read_workloads(text, shown)
    if selection:
        workloads = choose(workloads, selection, name)
    is_default = told in {"", DEFAULT_SIZE}
    return TaskSpec(
        name=name if is_default else f"{name}:{told}",
        source="kernelbench",
        text=text_with(text, workloads) if workloads else text,
        workloads=workloads,
    )


def _say_unknown(name: str) -> str:
    known = bundled_tasks()
    close = difflib.get_close_matches(name, known, n=1)
    suggestion = f"; did you mean {close[0]!r}?" if close else ""
    return (
        f"unknown problem {name!r}{suggestion} "
        f"(bundled: {', '.join(known)}; or give the path of a problem file that ends in .py, or SOURCE:… with a "
        f"source of {', '.join(sorted(READERS)) or 'none'})"
    )


def _read(path: Path, shown: str) -> str:
    return texts.read_text(path, f"problem file {shown!r}")
