"""Reads a GPUMode problem: a folder with `task.yml` and `reference.py`. Runs nothing of it and imports no torch.

    gpumode:PATH                    the benchmarks, timed; the tests are held out, for confirmation
    gpumode:PATH:cpu                the smallest tests, and of each text and boolean that cases give the smallest
    gpumode:PATH:test               the tests alone
    gpumode:PATH:benchmark/0,test   any of them
    gpumode:PATH:upstream-benchmark as the competition's harness reads the cases, where that differs

A case is a workload. Its seed only says how large the drawn ones may be: a judge draws other values in every call,
which is more than the competition's own re-check under a secret seed. Booleans stay booleans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluators.tasks.gpumode.contract import Contract, read_contract
from evaluators.tasks.gpumode.document import (
    DOCUMENT,
    Document,
    dimensions_of,
    flag_names,
    listed_names,
    read_document,
    read_text,
)
from evaluators.tasks.gpumode.problem_text import HELPERS, write_problem
from evaluators.tasks.gpumode.prompting import ENTRY_POINT, write_notes
from evaluators.tasks.gpumode.provenance import say_provenance
from evaluators.tasks.workloads import choose
from messages.base import ConfigError
from messages.tasks import SourceFile, TaskRules, TaskSpec, Tolerance, Workload

TEST, BENCHMARK, UPSTREAM, CPU = "test", "benchmark", "upstream-", "cpu"
_FEWEST, _MOST_TIMES = 2, 64
"""Of what is for a CPU: so many cases at least, and none of more than so many times the smallest one's size."""
_REFERENCE, _SUBMISSION, _HARNESS = "reference.py", "@SUBMISSION@", "eval.py"


def recognizes(path: Path) -> bool:
    """Say whether this is a problem's folder, or its `task.yml`."""
    return path.name == DOCUMENT or (path / DOCUMENT).is_file()


def read_task(selector: str) -> TaskSpec:
    """Return the task of a problem.

    Args:
        selector: the folder, or its `task.yml`, and behind a colon which cases.

    Raises:
        ConfigError: there is no such problem, or it is of no known kind.
    """
    folder, selection = _split(selector)
    document = read_document(folder / DOCUMENT)
    files = _read_files(folder, document)
    contract = read_contract(
        files[_REFERENCE],
        files.get("utils.py", ""),
        files.get(_HARNESS, ""),
        str(folder / _REFERENCE),
    )
    flags = flag_names(document)
    workloads = _workloads(document, folder, flags)
    _require_arguments(contract, workloads, folder)
    chosen = _chosen(workloads, selection, folder.name)
    return TaskSpec(
        name=f"gpumode/{folder.name}:{selection}" if selection else f"gpumode/{folder.name}",
        source="gpumode",
        text=write_problem(
            contract, [tuple(one.dimensions) for one in chosen], flags=flags, lists=listed_names(document)
        ),
        tolerance=Tolerance(profile=contract.tolerance.profile),
        rules=TaskRules(library_calls="allow"),
        workloads=chosen,
        files=tuple(_modules(files)),
        shown_files=(_REFERENCE,),
        calling="function",
        entry_point=ENTRY_POINT,
        notes=write_notes(document, contract, provenance=say_provenance(folder), remarks=_remarks(document, flags)),
    )


def read_ranking(selector: str) -> Document:
    """Return the document of a problem, for how its times count.

    Raises:
        ConfigError: there is none.
    """
    return read_document(_split(selector)[0] / DOCUMENT)


def _split(selector: str) -> tuple[Path, str]:
    """Return the folder that a selector names, and the cases behind it.

    Raises:
        ConfigError: there is no problem.
    """
    whole, _, selection = selector.rpartition(":")
    for named, cases in ((selector, ""), (whole, selection)):
        path = Path(named).expanduser()
        if named and path.name == DOCUMENT and path.is_file():
            return path.parent, cases
        if named and (path / DOCUMENT).is_file():
            return path, cases
    raise ConfigError(
        f"{selector!r} is no GPUMode problem: give a folder that holds {DOCUMENT}, such as problems/bioml/trimul of a "
        "checkout of gpu-mode/reference-kernels"
    )


def _read_files(folder: Path, document: Document) -> dict[str, str]:
    """Return the Python files that a submission finds beside itself, by name.

    Raises:
        ConfigError: one cannot be read, or there is no reference.
    """
    found = {
        one.name: read_text(folder / one.source)
        for one in document.files
        if one.source != _SUBMISSION and one.name.endswith(".py")
    }
    if _REFERENCE not in found:
        raise ConfigError(f"{str(folder / DOCUMENT)!r} names no {_REFERENCE} among its files")
    return found


def _modules(files: dict[str, str]) -> Iterator[SourceFile]:
    """Yield what the generated problem file may import."""
    for name, text in sorted(files.items()):
        if name != _HARNESS:
            yield SourceFile(path=name, text=text)
    helpers = Path(__file__).with_name(f"{HELPERS}.py")
    yield SourceFile(path=helpers.name, text=helpers.read_text(encoding="utf-8"))


def _workloads(document: Document, folder: Path, flags: Sequence[str]) -> tuple[Workload, ...]:
    """Return all cases; once more as the competition's harness reads them, where any differs."""
    found: list[Workload] = []
    for group, cases in ((BENCHMARK, document.benchmarks), (TEST, document.tests)):
        for number, case in enumerate(cases):
            where = f"{str(folder / DOCUMENT)!r}, {group} {number}"
            found.append(Workload(name=f"{group}/{number}", dimensions=dimensions_of(case, where)))
    if flags:
        found += [
            Workload(
                name=f"{UPSTREAM}{one.name}",
                dimensions={name: str(value) if name in flags else value for name, value in one.dimensions.items()},
            )
            for one in tuple(found)
        ]
    return tuple(found)


def _chosen(workloads: Sequence[Workload], selection: str, name: str) -> tuple[Workload, ...]:
    """Return the workloads that a selection names; of an empty one, the benchmarks, with the tests held out.

    Raises:
        ConfigError: there is none of a name.
    """
    if not selection:
        return _by_default(workloads)
    words = [word.strip() for word in selection.split(",")]
    spelt_out = [one for word in words for one in (_smallest(workloads) if word == CPU else (word,))]
    return choose(workloads, ",".join(dict.fromkeys(spelt_out)), name)


def _smallest(workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Return the names of the smallest tests, and of the smallest with each text and boolean that is small."""
    cases = [one for one in workloads if one.name.startswith(f"{TEST}/")] or list(workloads)
    by_size = sorted(cases, key=_size_of)
    found = {one.name: None for one in by_size[:_FEWEST]}
    for name in dict.fromkeys(name for case in cases for name in case.dimensions):
        values = dict.fromkeys(case.dimensions.get(name) for case in cases)
        if all(isinstance(value, str | bool | None) for value in values):
            found |= {next(one.name for one in by_size if one.dimensions.get(name) == value): None for value in values}
    largest = _MOST_TIMES * max(1.0, _size_of(by_size[0]))
    return tuple(one.name for one in cases if one.name in found and _size_of(one) <= largest)


def _size_of(workload: Workload) -> float:
    """Return a number that grows with a case's work: the product of its numbers, the largest counted twice.

    So one matrix of 4096 is larger than twenty of 32: what matrices take grows faster than they do.
    """
    numbers = [
        value
        for name, value in workload.dimensions.items()
        if name != "seed" and not isinstance(value, bool) and isinstance(value, int | float) and value > 0
    ]
    return math.prod(numbers) * max(numbers, default=1)


def _by_default(workloads: Sequence[Workload]) -> tuple[Workload, ...]:
    """Return the benchmarks, with the tests held out; without benchmarks, the tests."""
    shown = [one for one in workloads if one.name.startswith(f"{BENCHMARK}/")]
    tests = [one for one in workloads if one.name.startswith(f"{TEST}/")]
    if not shown:
        return tuple(tests)
    held_out = [Workload(name=one.name, dimensions=one.dimensions, hidden=True) for one in tests]
    return (*shown, *held_out)


def _require_arguments(contract: Contract, workloads: Sequence[Workload], folder: Path) -> None:
    """See that every case gives what the generator takes.

    Raises:
        ConfigError: one gives something else.
    """
    known = set(contract.arguments)
    for workload in workloads:
        if unknown := next((name for name in workload.dimensions if name not in known), None):
            raise ConfigError(
                f"{str(folder / DOCUMENT)!r}: {workload.name} gives {unknown!r}, which {contract.generator} of "
                f"{_REFERENCE} does not take"
            )


def _remarks(document: Document, flags: Sequence[str]) -> list[str]:
    ranking = {"last": "the time of the last benchmark", "mean": "the mean time", "geom": "the geometric mean time"}
    said = [f"The competition ranks by {ranking[document.ranking_by]} of its benchmarks."]
    if flags:
        names = ", ".join(f"`{name}`" for name in flags)
        said.append(
            f"Of the cases' arguments {names} is meant as a boolean, and is one here; the competition's own harness "
            "hands it over as a text, which is always true, so that what it switches is never tested there. Tensors "
            "have the dtypes that the competition's harness gives them."
        )
    return said
