"""Reads a GPUMode problem: a folder with `task.yml` and `reference.py`. Runs nothing of it and imports no torch.

    gpumode:PATH                    the benchmarks, timed; the tests are held out, for confirmation
    gpumode:PATH:cpu                the smallest tests, and for each string and boolean in the cases the smallest
    gpumode:PATH:test               only the tests
    gpumode:PATH:benchmark/0,test   any of them
    gpumode:PATH:upstream-benchmark as the competition's harness reads the cases, if that differs

A case is a workload. Its seed only limits the size of drawn values: a judge draws other values in every call, which is
stricter than the competition's own re-check under a secret seed. Booleans stay booleans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from evaluators.tasks.gpumode.problem_text import HELPERS, Contract, read_contract, write_problem
from evaluators.tasks.selectors import read_text
from evaluators.tasks.workloads import choose
from messages.base import ConfigError
from messages.tasks import Dimension, SourceFile, TaskRules, TaskSpec, Tolerance, Workload

TEST, BENCHMARK, UPSTREAM, CPU = "test", "benchmark", "upstream-", "cpu"
_FEWEST, _MOST_TIMES = 2, 64
"""Limits for a CPU: at least this many cases, and none larger than this multiple of the smallest one."""
_REFERENCE, _SUBMISSION, _HARNESS = "reference.py", "@SUBMISSION@", "eval.py"


def recognizes(path: Path) -> bool:
    """Return True if this is a problem's folder, or its `task.yml`."""
    return path.name == DOCUMENT or (path / DOCUMENT).is_file()


def read_task(selector: str) -> TaskSpec:
    """Return the task of a problem.

    Args:
        selector: the folder, or its `task.yml`, and after a colon the cases.

    Raises:
        ConfigError: there is no such problem, or it is of an unknown kind.
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
        notes=notes_for(document, contract, provenance=say_provenance(folder), remarks=_remarks(document, flags)),
    )


def read_ranking(selector: str) -> Document:
    """Return the document of a problem, for its ranking.

    Raises:
        ConfigError: there is none.
    """
    return read_document(_split(selector)[0] / DOCUMENT)


def _split(selector: str) -> tuple[Path, str]:
    """Split a selector into its folder and the cases after it."""
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
    """Return the Python files beside a submission, by name."""
    found = {
        one.name: read_text(folder / one.source, repr(str(folder / one.source)))
        for one in document.files
        if one.source != _SUBMISSION and one.name.endswith(".py")
    }
    if _REFERENCE not in found:
        raise ConfigError(f"{str(folder / DOCUMENT)!r} names no {_REFERENCE} among its files")
    return found


def _modules(files: dict[str, str]) -> Iterator[SourceFile]:
    """Yield the modules that the generated problem file may import."""
    for name, text in sorted(files.items()):
        if name != _HARNESS:
            yield SourceFile(path=name, text=text)
    helpers = Path(__file__).with_name(f"{HELPERS}.py")
    yield SourceFile(path=helpers.name, text=helpers.read_text(encoding="utf-8"))


def _workloads(document: Document, folder: Path, flags: Sequence[str]) -> tuple[Workload, ...]:
    """Return all cases, and those that the competition's harness reads differently once more."""
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
    """Return the workloads of a selection; for an empty one, the benchmarks, with the tests held out."""
    if not selection:
        return _by_default(workloads)
    words = [word.strip() for word in selection.split(",")]
    spelt_out = [one for word in words for one in (_smallest(workloads) if word == CPU else (word,))]
    return choose(workloads, ",".join(dict.fromkeys(spelt_out)), name)


def _smallest(workloads: Sequence[Workload]) -> tuple[str, ...]:
    """Return the names of the smallest tests, and of the smallest with each string and boolean."""
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

    So one matrix of 4096 counts more than twenty of 32: the time of matrices grows faster than their size.
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
    """Check that every case gives the generator's arguments."""
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


Ranking: TypeAlias = Literal["last", "mean", "geom"]
"""Combination of the benchmarks' times into one figure: the last one's, their arithmetic or their geometric mean."""

DOCUMENT = "task.yml"


class NamedFile(msgspec.Struct, frozen=True):
    """A file beside a submission."""

    name: str
    source: str
    """Path relative to the document; `@SUBMISSION@` for the submission itself."""


class Document(msgspec.Struct, frozen=True):
    """The fields of `task.yml` that are used here; others are ignored."""

    files: tuple[NamedFile, ...]
    tests: tuple[dict[str, object], ...] = ()
    benchmarks: tuple[dict[str, object], ...] = ()
    lang: str = "py"
    description: str = ""
    ranking_by: Ranking = "last"
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()


def read_document(path: Path) -> Document:
    """Return the document in a `task.yml`.

    Raises:
        ConfigError: it cannot be read, is not YAML, or has an invalid value.
    """
    import yaml  # noqa: PLC0415 - no other task needs it

    text = read_text(path, repr(str(path)))
    try:
        said: object = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{str(path)!r}, line {line}: {error.problem or 'no YAML'}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{str(path)!r} is no YAML: {' '.join(str(error).split())[:200]}") from error
    try:
        document = msgspec.convert(said, Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{str(path)!r} is no GPUMode task: {error}") from error
    _refuse_foreign(document, path)
    return document


def dimensions_of(case: Mapping[str, object], where: str) -> dict[str, Dimension]:
    """Return a case as dimensions of a workload; a list becomes its literal, as a string.

    Raises:
        ConfigError: it contains anything but numbers, strings, booleans and lists of them.
    """
    found: dict[str, Dimension] = {}
    for name, value in case.items():
        if not name.isidentifier():
            raise ConfigError(f"{where}: {name!r} cannot be an argument of generate_input")
        if isinstance(value, bool | int | float | str):
            found[name] = value
        elif isinstance(value, list) and all(isinstance(one, bool | int | float | str) for one in value):
            found[name] = repr(value)
        else:
            raise ConfigError(f"{where}: {name!r} is {type(value).__name__}, not a number, text, boolean or list")
    return found


def listed_names(document: Document) -> tuple[str, ...]:
    """Return the arguments that are lists in any case."""
    cases = (*document.tests, *document.benchmarks)
    return tuple(dict.fromkeys(name for case in cases for name, value in case.items() if isinstance(value, list)))


def flag_names(document: Document) -> tuple[str, ...]:
    """Return the arguments that are false in any case: upstream's harness reads them as true."""
    cases = (*document.tests, *document.benchmarks)
    return tuple(dict.fromkeys(name for case in cases for name, value in case.items() if value is False))


def _refuse_foreign(document: Document, path: Path) -> None:
    if document.lang != "py":
        raise ConfigError(f"{str(path)!r}: problems of lang {document.lang!r} are not supported; only 'py' is")
    if document.multi_gpu:
        raise ConfigError(f"{str(path)!r} is a problem for several GPUs at once, which candidates here do not get")
    if not document.tests and not document.benchmarks:
        raise ConfigError(f"{str(path)!r} has neither tests nor benchmarks")


_LICENCES = ("LICENSE", "LICENSE.md", "LICENSE.txt", "COPYING")
_ABOVE = 6
_COMMIT = 12


def say_provenance(folder: Path) -> str:
    """Return a sentence: path in the checkout, commit and licence, as far as they are known."""
    above = [folder, *folder.absolute().parents][:_ABOVE]
    root = next((one for one in above if (one / ".git").exists()), None)
    licence = next((one / name for one in above for name in _LICENCES if (one / name).is_file()), None)
    path = folder.absolute().relative_to(root).as_posix() if root else folder.name
    commit = _commit_of(root) if root else ""
    at = f" at commit {commit}" if commit else ""
    terms = f"licence: {_first_line(licence)}" if licence else "no licence file was found beside it"
    return f"Source: GPUMode problem `{path}`{at}; {terms}."


def _commit_of(root: Path) -> str:
    """Return the checkout's commit, shortened; empty if no plain file tells it."""
    try:
        head = (root / ".git" / "HEAD").read_text(encoding="ascii").strip()
        if head.startswith("ref: "):
            head = (root / ".git" / head.removeprefix("ref: ")).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return head[:_COMMIT]


def _first_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return path.name
    return next((line.strip("# ").strip() for line in lines if line.strip()), path.name)[:80]


ENTRY_POINT = "custom_kernel"

_EXAMPLE = """```python
import torch


def custom_kernel(data):
    x, weight = data  # a problem of two tensors: the tuple that generate_input returns
    return torch.nn.functional.relu(x) * weight
```"""


def notes_for(document: Document, contract: Contract, *, provenance: str, remarks: Sequence[str] = ()) -> str:
    """Return the notes of a task, as Markdown.

    Args:
        document: `task.yml`.
        contract: call form of its reference.
        provenance: its source and licence, in a sentence.
        remarks: differences from the competition's own harness, a sentence each.
    """
    parts = [
        "### The problem, in its authors' words",
        document.description.strip() or "(They say nothing.)",
        "### How a submission is called",
        *_contract(contract),
        "### How it counts",
        " ".join((*remarks, contract.tolerance.note, provenance)).strip(),
    ]
    return "\n\n".join(parts)


def _contract(contract: Contract) -> list[str]:
    rules = [
        "A candidate in the language `python` defines a function "
        f"`{ENTRY_POINT}(data)`. `data` is what the problem's `{contract.generator}` returns, in its own form; the "
        "function returns what the reference returns for it. Do not import `task`, `utils` or `reference`."
    ]
    if contract.rooms:
        rules.append(
            "The last items of `data` are uninitialised tensors, room for the outputs: write to them and return them, "
            "or return tensors of your own. Dtypes are those of the room, shapes those of the reference's outputs. "
            "Everything else in `data` must stay as it is."
        )
    if contract.passes:
        forward, backward = contract.passes
        rules.append(
            f"The file also defines `{forward}(logits, targets)` and `{backward}(logits, targets, grad_output)`, which "
            "are what the competition calls, and uses them:\n\n"
            f"```python\ndef {ENTRY_POINT}(data):\n    logits, targets, grad_output = data\n"
            f"    return {forward}(logits, targets), {backward}(logits, targets, grad_output)\n```"
        )
    else:
        rules.append(f"An example of the form, of another problem:\n\n{_EXAMPLE}")
    return rules
