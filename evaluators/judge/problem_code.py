"""Runs a problem's text, and the modules beside it, from memory: no folder holds them that a candidate could read.

Modules are found by `import` as if they lay beside the problem file, packages and folders included; their sources are
there for who asks for them (`inspect`, `@triton.jit`). Each loading runs all of them anew.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import ModuleType
from typing import Generic, TypeVar

import torch

from evaluators.judge.redirect import interpret_triton, redirected
from messages.tasks import TaskSpec

_MODULE_NAME = "ksearch_problem"
_T = TypeVar("_T")


class ProblemError(Exception):
    """The problem's code failed, or does what a task may not do. The text is for the one who wrote it."""


class NoMemoryError(ProblemError):
    """It found too little memory on the GPU, which a candidate may have taken: that says nothing of the problem."""


def stage_of(task: TaskSpec, device: str) -> Callable[[], AbstractContextManager[None]]:
    """Return what the problem's code is to run in: on a CPU, if it names a GPU, that means the CPU."""
    names_gpu = device == "cpu" and any("cuda" in text for text in _texts(task))
    return partial(redirected, device) if names_gpu else nullcontext


class Staged(Generic[_T]):
    """Calls a reference; in its stage only if it fails without, since there every operator costs microseconds more.

    That would be its time, and a candidate's credit.
    """

    def __init__(self, run: Callable[..., _T], stage: Callable[[], AbstractContextManager[None]]) -> None:
        """Call nothing yet.

        Args:
            run: calls it.
            stage: `stage_of` its task.
        """
        self._run, self._stage = run, stage
        self.is_needed = False
        """Whether it failed without."""

    def __call__(self, *arguments: object) -> _T:
        """Call it.

        Raises:
            ProblemError: it fails in its stage, too.
        """
        if not self.is_needed:
            try:
                return self._run(*arguments)
            except ProblemError:
                if self._stage is nullcontext:
                    raise
                self.is_needed = True
        with self._stage():
            return self._run(*arguments)


def load_module(task: TaskSpec, device: str) -> ModuleType:
    """Run a task's problem text and return the module; to be called in its stage.

    Raises:
        ProblemError: it fails, or a file beside it has the name of a module that is already loaded.
    """
    forget_modules()
    finder = _Finder(task)
    if taken := next((name for name in finder.files if name != _MODULE_NAME and name in sys.modules), None):
        path = finder.files[taken][0]
        raise ProblemError(f"the task's file {path!r} has the name of a module that the judge uses; rename it")
    sys.meta_path.insert(0, finder)
    if device == "cpu" and any("triton.jit" in text for text in _texts(task)):
        called("the file", interpret_triton)
    return called("the file", lambda: importlib.import_module(_MODULE_NAME))


def forget_modules() -> None:
    """Have no module of a problem be there any more."""
    for finder in [one for one in sys.meta_path if isinstance(one, _Finder)]:
        sys.meta_path.remove(finder)
        for name in finder.files:
            sys.modules.pop(name, None)


def seed_all(seed: int) -> None:
    """Seed whatever a problem draws with: torch, random, and numpy where it is there."""
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % (1 << 32))


def called(what: str, function: Callable[[], _T]) -> _T:
    """Call code of the problem.

    Raises:
        ProblemError: it raises, whatever it is.
    """
    try:
        return function()
    except ProblemError:
        raise
    except torch.OutOfMemoryError as error:
        raise NoMemoryError(f"{what} finds too little memory: {' '.join(str(error).split())[:500]}") from error
    except (Exception, SystemExit) as error:  # the problem's code may raise whatever it likes
        text = " ".join(str(error).split())[:500]
        raise ProblemError(f"{what} raises {type(error).__name__}: {text}") from error


def _texts(task: TaskSpec) -> tuple[str, ...]:
    return (task.text, *(file.text for file in task.files))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Finds and loads the modules of one task."""

    def __init__(self, task: TaskSpec) -> None:
        self.files = {_MODULE_NAME: (f"{task.name}.py", task.text)}
        """Path and text by module name; of folders without a file of their own, nothing."""
        for file in task.files:
            if file.path.endswith(".py"):
                *folders, name = file.path.removesuffix(".py").removesuffix("/__init__").split("/")
                for depth in range(1, len(folders) + 1):
                    self.files.setdefault(".".join(folders[:depth]), ("/".join(folders[:depth]), ""))
                self.files[".".join((*folders, name))] = (file.path, file.text)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the interface's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname in self.files else None

    def is_package(self, fullname: str) -> bool:
        return not self.files[fullname][0].endswith(".py") or self.files[fullname][0].endswith("/__init__.py")

    def get_source(self, fullname: str) -> str:
        return self.files[fullname][1]

    def get_filename(self, fullname: str) -> str:
        return self.files[fullname][0]
