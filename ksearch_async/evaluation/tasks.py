"""Tasks given in Python, problems described from their text, and refusal of unfit tasks.

A task made here is a path like any other (`os.PathLike`): converted to a path, it writes itself to the user's cache
folder under a name derived from its content, so that a run can be resumed without the program that made it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Generic, Literal, ParamSpec, TypeVar

import msgspec

from evaluators.tasks.own.document import REFERENCE, Bounds, Document, Input, Rules, write_folder
from evaluators.tasks.own.drafts import draft_of
from evaluators.tasks.own.functions import standalone
from evaluators.tasks.own.reading import read_task
from ksearch_async.errors import refusal
from messages.base import ConfigError, Language
from messages.tasks import Dimension, LibraryCalls, TaskDescription, TaskSpec, Workload, content_hash

if TYPE_CHECKING:
    import torch


_P = ParamSpec("_P")
_R = TypeVar("_R")
_Workloads = Mapping[str, Mapping[str, Dimension]]


class OwnTask(Generic[_P, _R]):
    """A function as the reference of a task. It can be called as before, and passed to `run` and `evaluate`."""

    def __init__(self, function: Callable[_P, _R], document: Document, files: Mapping[str, str]) -> None:
        self._function = function
        self._document = document
        self._files = dict(files)
        self.name = document.name

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the reference."""
        return self._function(*args, **kwargs)

    def __fspath__(self) -> str:
        """Write the task to the cache folder, if it is not there yet, and return its folder.

        Raises:
            ConfigError: it is not a task, or cannot be written.
        """
        name = f"{self.name}-{content_hash(repr(self._document), *self._files, *self._files.values())[:12]}"
        folder = _cache_folder() / name
        return os.fspath(self.write(folder))

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write the task as a folder with a `task.toml`, to keep or to edit, and return the folder.

        Raises:
            ConfigError: it is not a task, or cannot be written.
        """
        path = Path(folder)
        write_folder(path, self._document, self._files)
        read_task(os.fspath(path))
        return path


class ModuleTask:
    """A torch module as the reference of a task, to pass to `run`, `search` and `evaluate`."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        """A problem file in KernelBench's format."""

    def __fspath__(self) -> str:
        """Write the problem file to the cache folder, and return its path.

        Raises:
            ConfigError: it cannot be written.
        """
        return os.fspath(self.write(_cache_folder() / content_hash(self.text)[:12] / f"{self.name}.py"))

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the problem file and return its path.

        Raises:
            ConfigError: it cannot be written.
        """
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write a task to {str(file)!r}: {error.strerror}") from error
        return file


def task(
    *,
    inputs: Sequence[Input],
    workloads: _Workloads,
    hidden_workloads: _Workloads | None = None,
    name: str = "",
    description: str = "",
    tolerance: str = "strict",
    rtol: float | None = None,
    atol: float | None = None,
    languages: Sequence[Language] = (),
    calling: Literal["function", "destination"] = "function",
    library_calls: LibraryCalls = "deny",
) -> Callable[[Callable[_P, _R]], OwnTask[_P, _R]]:
    """Make a function the reference of a task. The arguments have the meaning of the keys of a `task.toml`.

    The function is read as text, with the imports, functions, classes and constants of its file that it names, so it
    must be at the top level of a file. Its decorators are left out.

    Args:
        inputs: its arguments, in their order.
        workloads: name to dimension to value.
        hidden_workloads: workloads on which a kernel must be right before it counts as the best; models do not see
            them.
        name: name of the task; empty: the function's.
        description: text for models; empty: the function's docstring.
        tolerance: a profile, as `--tolerance`.
        rtol: instead of the profile's.
        atol: instead of the profile's.
        languages: languages of kernels; empty: any.
        calling: how candidates in Python are called.
        library_calls: whether torch's own operators may do the work.
    """

    def made(function: Callable[_P, _R]) -> OwnTask[_P, _R]:
        document = Document(
            name=name or function.__name__,
            reference=f"{REFERENCE}:{function.__name__}",
            description=description or (function.__doc__ or "").strip(),
            inputs=tuple(inputs),
            workloads={one: dict(given) for one, given in workloads.items()},
            hidden_workloads={one: dict(given) for one, given in (hidden_workloads or {}).items()},
            tolerance=Bounds(profile=tolerance, rtol=rtol, atol=atol),
            languages=tuple(languages),
            calling=calling,
            rules=Rules(library_calls=library_calls),
        )
        return OwnTask(function, document, {REFERENCE: standalone(function)})

    return made


def task_from_module(
    module: type[torch.nn.Module], inputs: Sequence[torch.Tensor], *, init_inputs: Sequence[object] = (), name: str = ""
) -> ModuleTask:
    """Return a task with a torch module as its reference, and inputs like these examples.

    Args:
        module: its class, at the top level of a file; it is read as text, as in `task`. Its parameters are drawn again
            from a seed of the task: the values of a trained instance are not part of a task.
        inputs: one example of each input. Shapes and dtypes count; for integers also their range. Floating-point inputs
            are drawn from a normal distribution with about the example's mean and deviation.
        init_inputs: arguments of its constructor: numbers, strings, booleans, None, and lists, tuples and dicts of
            them.
        name: name of the task; empty: the class's.

    Raises:
        ConfigError: its source cannot be read, or an argument is of another kind.
    """
    if not isinstance(module, type):
        raise ConfigError(
            f"task_from_module takes a class and what it is made with, not an instance of {type(module).__name__}: "
            "task_from_module(Model, inputs, init_inputs=[…])"
        )
    text = standalone(module).rstrip("\n")
    known = re.compile(rf"\b{re.escape(module.__name__)}\b")
    if len(known.findall(text)) == 1:  # named where it is defined only: it can be called as problem files call it
        text, alias = known.sub("Model", text), ""
    else:
        alias = f"\n\n\nModel = {module.__name__}"
    drawn = ",\n".join(f"        {_like(index, one)}" for index, one in enumerate(inputs))
    functions = (
        f"\n\n\ndef get_inputs():\n    import torch\n\n    return [\n{drawn},\n    ]\n"
        f"\n\ndef get_init_inputs():\n    return {_literal(init_inputs)}\n"
    )
    return ModuleTask(name or module.__name__, text + alias + functions)


def _like(index: int, example: torch.Tensor) -> str:
    dtype, shape = str(example.dtype), tuple(example.shape)
    if example.numel() == 0 or example.is_complex():
        raise ConfigError(f"inputs[{index}] is {dtype} of shape {shape}; tasks take dense tensors that are not empty")
    if example.is_floating_point():
        values = example.double()
        mean, deviation = float(values.mean()), float(values.std(correction=0))
        # Round to one digit, so that another example of the same kind gives the same task.
        centre = 0.0 if abs(mean) < deviation / 10 else mean
        return f"torch.randn({shape}, dtype={dtype}) * {deviation:.1g} + {centre:.1g}"
    if dtype == "torch.bool":
        return f"torch.rand({shape}) < {float(example.double().mean()):.6g}"
    return f"torch.randint({int(example.min())}, {int(example.max()) + 1}, {shape}, dtype={dtype})"


def _literal(values: Sequence[object]) -> str:
    try:
        msgspec.json.encode(list(values))
    except TypeError as error:
        raise ConfigError(f"init_inputs: {error}; give numbers, texts, lists and dicts") from error
    return repr(list(values))


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ksearch" / "tasks"


class ProblemFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A problem as its text describes it."""

    name: str
    summary: str
    """First line of the file's docstring."""
    formula: str = ""
    """Docstring of `Model`."""
    inputs: tuple[str, ...] = ()
    """Arguments of `Model.forward`."""
    shapes: str = ""
    """Docstring of `Model.forward`: shapes and dtypes, as far as its author documented them."""
    sizes: dict[str, dict[str, Dimension]] = {}
    """Workload → dimension → extent, if the problem names workloads; without hidden ones."""


def facts_of(task: TaskSpec, workloads: Sequence[Workload] | None = None) -> ProblemFacts:
    """Read a problem's docstrings and its workloads. Missing parts stay empty.

    Args:
        task: the problem.
        workloads: the workloads to describe; None: the task's own.
    """
    tree = ast.parse(task.text)
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    model = next(classes, None)
    functions = (node for node in model.body if isinstance(node, ast.FunctionDef)) if model else ()
    forward = next((node for node in functions if node.name == "forward"), None)
    said = (ast.get_docstring(tree) or "").strip()
    return ProblemFacts(
        name=task.name,
        summary=said.partition("\n")[0],
        formula=(ast.get_docstring(model) or "") if model else "",
        inputs=tuple(argument.arg for argument in forward.args.args[1:]) if forward else (),
        shapes=(ast.get_docstring(forward) or "") if forward else "",
        sizes={one.name: one.dimensions for one in (task.shown if workloads is None else workloads)},
    )


def check_fitness(description: TaskDescription, *, allow_trivial: bool) -> None:
    """Check that a task can tell a kernel from a trick.

    Args:
        description: contains the findings of running its reference.
        allow_trivial: accept any task.

    Raises:
        ConfigError: an answer that computes nothing would pass.
    """
    intake = description.intake
    if intake is None or intake.fitness != "refused" or allow_trivial:
        return
    raise refusal(
        f"task {description.name!r} cannot tell a kernel from an answer that computes nothing: {intake.findings[0]}",
        f"ksearch check-task says more; --allow-trivial takes it all the same (tolerance: {intake.tolerance})",
    )


def marks_of(description: TaskDescription) -> tuple[str, ...]:
    """Return notes for users of the task's results, a sentence each."""
    return () if description.intake is None else description.intake.findings


def check_accepted(task: str) -> None:
    """Refuse to search on a task that a model drafted and no person accepted.

    Args:
        task: the task as people name it.

    Raises:
        ConfigError: it is not accepted yet, or its document cannot be read.
    """
    if (draft := draft_of(task)) is not None:
        raise refusal(
            f"task {task!r} was drafted by {draft.model}, and is not accepted yet",
            f"read its reference and its workloads, then: ksearch check-task {quote(task)} --accept",
        )
