"""Builds a module candidate that compiles extensions inside: started by `inline.py`.

Or a module of a warm process (`evaluators/process/warm.py`): `prepare` once, `main` in a process forked for each
candidate.

Its argument is a JSON object (`InlineJob` in `inline.py`). The file is imported, here, behind the builder's layers and
without a GPU; then its functions without parameters that name `load_inline` or `load` are called, which is where those
compile that compile on first use. Extensions that torch's own functions build meanwhile are kept under a key of sources
and flags, and the runner finds them by it. Ends with 0, or with 1 when nothing could be built, and says why.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from evaluators.languages import syntax
from evaluators.runners import inline
from evaluators.runners.program import import_from, tell_raised

_BUILDERS = frozenset(("load_inline", "load"))
_BUILD_FOLDER = re.compile(rf"{inline.INLINE}/[0-9a-f]+\.building/")
_MOST_LINES = 40
_JOBS = "2"


def main(argument: str = "") -> int:
    """Build the candidate in the working directory."""
    job = json.loads(argument or sys.argv[-1])
    if syntax.check_module(job["entry_point"], job["programs"]) != 0:
        return 1
    os.environ.update(_environment(job))
    prepare()
    folder = os.getcwd()  # noqa: PTH109 - the start-up
    recorder = _Recorder(folder)
    sys.stdout.flush()
    error = _import(folder, job)
    # A failed compiler is the reason only if the candidate did not go on without its extension.
    if error is not None and recorder.failures:
        return _refuse(recorder.failures[-1])
    if error is not None and not recorder.built:
        return _refuse(error)
    for name in recorder.built:
        sys.stdout.write(f"built {name}\n")
    if error is not None:
        sys.stdout.write(f"not imported further here: {error.strip().splitlines()[-1]}\n")
    return 0


def prepare() -> None:
    """Import what building needs: seconds, which a process that builds many candidates spends once."""
    os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    import torch.utils.cpp_extension  # noqa: F401, PLC0415 - see above


def _environment(job: Mapping[str, object]) -> dict[str, str]:
    folders = [os.path.dirname(str(path)) for path in (job["ninja"], job["nvcc"]) if path]  # noqa: PTH120 - start-up
    told = {"PATH": os.pathsep.join((*folders, os.environ.get("PATH", os.defpath))), "MAX_JOBS": _JOBS}
    if job["compiler"]:
        told["CXX"] = told["CC"] = str(job["compiler"])
    if job["cuda_home"]:
        told |= {"CUDA_HOME": str(job["cuda_home"]), "TORCH_CUDA_ARCH_LIST": str(job["architecture"])}
    return told


class _Recorder:
    """Stands in front of torch's functions, and keeps what they build where the runner looks for it."""

    def __init__(self, folder: str) -> None:
        from torch.utils import cpp_extension  # noqa: PLC0415 - costs a second

        self._folder = folder
        self.built: list[str] = []
        self.failures: list[str] = []
        """Output of failed compilers."""
        cpp_extension.CUDA_HOME = os.environ.get("CUDA_HOME")
        for name in _BUILDERS:
            vars(cpp_extension)[name] = self._recorded(name, vars(cpp_extension)[name])

    def _recorded(self, function: str, build: Callable[..., object]) -> Callable[..., object]:
        def recorded(*args: object, **options: object) -> object:
            arguments = inline.arguments_of(function, args, options)
            if arguments.get("is_python_module", True) is not True:
                raise inline.NotBuiltError(f"{function}: only extensions that are Python modules are supported")
            key = inline.key_of(function, arguments, self._folder)
            final = Path(self._folder, inline.INLINE, key)
            if not final.is_dir():
                self._build(build, arguments, final)
                self.built.append(str(arguments.get("name")))
            return inline.load_library(str(next(final.glob("*.so"))))

        return recorded

    def _build(self, build: Callable[..., object], arguments: Mapping[str, object], final: Path) -> None:
        """Have torch build it, and keep the library alone; the folder appears complete."""
        unfinished = final.with_name(f"{final.name}.building")
        unfinished.mkdir(parents=True, exist_ok=True)
        try:
            build(**{**arguments, "build_directory": str(unfinished), "verbose": False})
        except RuntimeError as error:
            self.failures.append(_compiler_said(str(error), self._folder))
            raise
        except ImportError as error:  # it was built, and cannot be loaded without a GPU's libraries, say
            sys.stdout.write(f"not loaded here: {error}\n")
        libraries = [path for path in unfinished.iterdir() if path.suffix == ".so"]
        for path in unfinished.iterdir():
            if path not in libraries:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        unfinished.rename(final)


def _import(folder: str, job: Mapping[str, object]) -> str | None:
    """Import the candidate and have it compile. Returns what it raised, if it did."""
    program = os.path.join(folder, str(job["program"]))  # noqa: PTH118 - the start-up
    try:
        import_from(program, str(job["entry_point"]))
        for name in _compiling_functions(program):
            function = vars(sys.modules["ksearch_candidate"]).get(name)
            if callable(function):
                function()
        for path, names in _elsewhere(folder, job):
            for name in names:
                vars(sys.modules[path])[name]()
    except BaseException as error:  # noqa: BLE001 - the candidate may raise whatever it likes
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        return tell_raised(error, folder)
    return None


def _elsewhere(folder: str, job: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    programs = job["programs"]
    for path in programs if isinstance(programs, list) else ():
        name = str(path).removesuffix(".py").replace("/", ".")
        if path != job["program"] and name in sys.modules:
            yield name, _compiling_functions(os.path.join(folder, str(path)))  # noqa: PTH118 - as above


def _compiling_functions(path: str) -> list[str]:
    """Return the names of a file's functions without parameters that name one of torch's builders."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError):
        return []
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not _parameters(node.args) and _names_builder(node)
    ]


def _parameters(arguments: ast.arguments) -> bool:
    return bool(arguments.args or arguments.posonlyargs or arguments.kwonlyargs)


def _names_builder(function: ast.FunctionDef) -> bool:
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {node.id for node in called if isinstance(node, ast.Name)}
    names |= {node.attr for node in called if isinstance(node, ast.Attribute)}
    return bool(names & _BUILDERS)


def _compiler_said(text: str, folder: str) -> str:
    """Return the lines of a failed build that name errors, without paths of this host, the first one last."""
    text = _BUILD_FOLDER.sub("", text.replace(folder + os.sep, ""))
    lines = [line for line in text.splitlines() if ": error" in line or " error:" in line]
    if not lines:
        return text.strip()[-2000:] or traceback.format_exc(limit=1)
    return "\n".join((*lines[1:_MOST_LINES], lines[0]))


def _refuse(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
