"""The registry of task sources, and the functions that find a task or a candidate by it. Runs nothing of a problem.

A source is a package with the functions of `Source`. To add one: write its folder, a line in `SOURCES`, and its name in
`messages.tasks.TaskSource`. The packages share file names:

- `reading.py`: finds and parses a task, and writes its notes for models; imports no torch
- `problem_text.py`: writes the problem file, if the source has another form
- `packing.py`: the source's own forms of candidates, in and out
- `scoring.py`: the source's metrics, from our verdicts

`tests/contracts/task_sources.py` tests the promises of every source.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from evaluators.tasks import defaults, flashinfer, gpumode, kernelbench, own, tritonbench
from evaluators.tasks.defaults import Competition
from evaluators.tasks.selectors import Selector, parse_selector, read_text
from evaluators.tasks.workloads import choose, read_workloads, selections, text_with
from messages.base import ConfigError
from messages.tasks import Candidate, TaskSpec, Workload


class CandidateForms(Protocol):
    """A source's forms of candidates; `defaults` has them for sources without any."""

    def candidate_of_text(self, text: str, task: TaskSpec, name: str) -> Candidate:
        """Return the candidate of a Python file for a task with functions as candidates.

        Raises:
            ConfigError: the file is not in a form of this source.
        """

    def candidate_of_json(self, text: str, shown: str, task: TaskSpec) -> Candidate:
        """Return the candidate of a JSON file, called `shown` in messages.

        Raises:
            ConfigError: the source has no such form, or the file is for another task.
        """

    def reference_candidate(self, task: TaskSpec) -> Candidate:
        """Return the task's reference as a candidate.

        Raises:
            ConfigError: it cannot be called like one.
        """


class Source(CandidateForms, Protocol):
    """A task source: the functions of its package."""

    def read_task(self, selector: str) -> TaskSpec:
        """Return a task.

        Args:
            selector: the text after the source's name and colon, or a recognized path with the text after it.

        Raises:
            ConfigError: there is none, or it is not in the source's form; names file, line or key, and what to do.
        """

    def recognizes(self, path: Path) -> bool:
        """Return True if a file or folder can only be this source's. Reads as little as possible."""

    def find_competition(self, name: str) -> Competition | None:
        """Return how submissions to a task are ranked; None if they are not.

        Raises:
            ConfigError: the task cannot be read.
        """


SOURCES: Mapping[str, Source] = {
    "flashinfer": flashinfer,
    "gpumode": gpumode,
    "kernelbench": kernelbench,
    "own": own,
    "tritonbench": tritonbench,
}
"""Sources by the name before the colon."""

DEFAULT_SIZE = "cpu"
"""Default workload of a bundled problem: shapes that take a CPU about a millisecond."""

_PROBLEMS = Path(__file__).parent / "problems"


def bundled_tasks() -> tuple[str, ...]:
    """Return the names of the problems that come with the package, sorted."""
    return tuple(sorted(path.stem for path in _PROBLEMS.glob("*.py")))


def is_bundled(name: str) -> bool:
    """Return True if `name` is a bundled problem's, with or without workloads: `NAME`, `NAME:gpu`."""
    problem, colon, selection = name.partition(":")
    if problem not in bundled_tasks():
        return False
    return not colon or all(word.strip() in sizes_of(problem) for word in selection.split(","))


def sizes_of(problem: str) -> tuple[str, ...]:
    """Return the selections of a bundled problem that may follow its colon: groups of workloads, and workloads."""
    return selections(read_workloads(_read(_PROBLEMS / f"{problem}.py", problem), problem))


def workloads_of(problem: str) -> tuple[Workload, ...]:
    """Return all workloads that a bundled problem names and shows."""
    text = _read(_PROBLEMS / f"{problem}.py", problem)
    return tuple(workload for workload in read_workloads(text, problem) if not workload.hidden)


def load_task(name_or_path: str) -> TaskSpec:
    """Return the task of a bundled name, of a path, or of a source.

    Args:
        name_or_path: `NAME` is the bundled problem in its CPU size, `NAME:gpu` in its GPU size, `NAME:shapes` with all
            workloads of that group. A path to a file in KernelBench's format means all workloads of the file,
            `FILE.py:short,long` some. `SOURCE:…` is read by that source (`SOURCES`), and so is a path that only one of
            them recognizes.

    Raises:
        ConfigError: there is no such problem, the file cannot be read, or it is not a problem file.
    """
    problem, _, selection = name_or_path.partition(":")
    if problem in bundled_tasks():
        return _task(_PROBLEMS / f"{problem}.py", problem, selection or DEFAULT_SIZE, selection, name_or_path)
    asked = parse_selector(name_or_path)
    if (found := _source_of(asked)) is not None:
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
    """Return True if a source would read this task."""
    return not is_bundled(name) and _source_of(parse_selector(name)) is not None


def find_competition(name: str) -> Competition | None:
    """Return how submissions to a task are ranked; None if they are not.

    Raises:
        ConfigError: the task cannot be read.
    """
    found = _source_of(parse_selector(name))
    return None if found is None else found[0].find_competition(name)


def candidate_of_text(text: str, task: TaskSpec, name: str) -> Candidate:
    """Return the candidate of a Python file; see `CandidateForms`."""
    return _forms_of(task).candidate_of_text(text, task, name)


def candidate_of_json(text: str, shown: str, task: TaskSpec | None) -> Candidate:
    """Return the candidate of a JSON file; see `CandidateForms`."""
    return (
        defaults.candidate_of_json(text, shown, task)
        if task is None
        else _forms_of(task).candidate_of_json(text, shown, task)
    )


def reference_candidate(task: TaskSpec) -> Candidate:
    """Return the task's reference as a candidate; see `CandidateForms`."""
    return _forms_of(task).reference_candidate(task)


def _forms_of(task: TaskSpec) -> CandidateForms:
    return SOURCES.get(task.source, defaults)


def _source_of(asked: Selector) -> tuple[Source, str] | None:
    """Return the source of a task and its selector; None: no source has it."""
    if asked.source in SOURCES:
        return SOURCES[asked.source], asked.within
    if asked.source or asked.path is None:
        return None
    path = asked.path
    return next(((source, asked.within) for source in SOURCES.values() if source.recognizes(path)), None)


def split_path(path: str) -> tuple[Path, str]:
    """Return a problem file and the workloads after it: `FILE.py:short,long`; or none."""
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
        f"source of {', '.join(sorted(SOURCES)) or 'none'})"
    )


def _read(path: Path, shown: str) -> str:
    return read_text(path, f"problem file {shown!r}")


def task_of_text(text: str) -> TaskSpec:
    """Return the task of a problem file's text, with its own inputs and no named workloads.

    Raises:
        ConfigError: it is not a problem file.
    """
    kernelbench.check_problem(text, "given as text")
    return TaskSpec(name="problem", source="kernelbench", text=text)
