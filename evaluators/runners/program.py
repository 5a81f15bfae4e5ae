"""A candidate that is a Python file: loading its entry point, and telling what it raised. Stdlib only."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator

MODULE_NAME = "ksearch_candidate"
_MAX_FRAMES = 6
_MAX_MESSAGE = 600
_MAX_EXCERPT_LINES = 16
_IMPORTABLE = (
    "Importable are the standard library, torch, triton, numpy, einops where it is installed, and your own files"
)


class NoEntryPointError(Exception):
    """The file was loaded, but what is to be called is not there or takes other arguments."""


def load_entry_point(path: str, name: str, arguments: int) -> Callable[..., object]:
    """Import a file as a module of its own and return the function to be called.

    Raises:
        NoEntryPointError: there is no such function, or it cannot be called with this number of arguments.
        BaseException: whatever the file raises.
    """
    function = import_from(path, name)
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError as error:
        raise NoEntryPointError(
            f"{name} is called with {arguments} arguments, as the task's contract lists them: {error}"
        ) from None
    return function


def import_from(path: str, name: str) -> Callable[..., object]:
    """Import a file as a module of its own and return what it calls `name`: a function or a class."""
    sys.path.insert(0, os.path.dirname(path))  # noqa: PTH120 - pathlib would cost start-up
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise NoEntryPointError(f"{os.path.basename(path)} is no Python file")  # noqa: PTH119
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    found: Callable[..., object] | None = vars(module).get(name)
    if found is None or not callable(found):
        raise NoEntryPointError(f"{name} is not defined")
    return found


def tell_raised(error: BaseException, folder: str) -> str:
    """Return where in the candidate's own files it was raised, then in the last line what: `ValueError: …`."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    lines = [line for part in chain for line in _own_frames(part, folder)][-_MAX_FRAMES:]
    lines.extend(line for part in chain for line in _compiler_excerpt(part))
    lines.append(_said(chain[-1]))
    return "\n".join(lines).replace(folder + os.sep, "")


def _own_frames(error: BaseException, folder: str) -> Iterator[str]:
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(folder + os.sep):
            yield f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    if isinstance(error, SyntaxError) and error.filename:
        yield f"{error.filename}:{error.lineno} in module: {(error.text or '').strip()}"


def _compiler_excerpt(error: BaseException) -> Iterator[str]:
    """Yield what a compiler of kernels says above its message: the source up to the place, and a caret."""
    text = str(error)
    if text.startswith("at ") and "\n" in text:
        yield from text.splitlines()[-_MAX_EXCERPT_LINES:]


def _said(error: BaseException) -> str:
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind}: {error.msg}"
    text = str(error)
    if isinstance(error, ModuleNotFoundError):
        text = f"there is no module {error.name!r} here. {_IMPORTABLE}"
    if text.startswith("at ") and "\n" in text:
        text = text.rstrip().splitlines()[-1]
    message = " ".join(text.split())[:_MAX_MESSAGE]
    return f"{kind}: {message}" if message else kind
