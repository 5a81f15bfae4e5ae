"""KernelBench's problem format: a Python file that defines `Model`, `get_inputs` and `get_init_inputs`.

`Model(*get_init_inputs())` is a torch module; `model(*get_inputs())` is the reference. Source of the format:
github.com/ScalingIntelligence/KernelBench, `KernelBench/level*/`. Here it is only parsed; the judge runs it.

    kernelbench:1/23            problem 23 of level 1 of the checkout that a variable names, as published
    kernelbench:1/23:cpu        the same with sizes that a CPU judges in seconds (sizing.py)
    kernelbench:PATH/1/23       of the checkout at PATH
    kernelbench:FILE.py:cpu     a problem file, smaller
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from evaluators.tasks import texts
from evaluators.tasks.kernelbench.sizing import sized_for_cpu
from messages.base import ConfigError
from messages.tasks import TaskSpec

REQUIRED = ("Model", "get_inputs", "get_init_inputs")
VARIABLES = ("KSEARCH_KERNELBENCH", "DATASET_ROOT")
"""Environment variables that may name the checkout; the second is the original K-Search's."""
LEVELS = (1, 2, 3)
CPU = "cpu"
"""The size that is made for a CPU."""
_HUB_LEVEL = 4
_NUMBERS = re.compile(r"(?:(?P<root>.+)/)?(?:level)?(?P<level>\d+)/(?P<id>\d+)")


class ProblemFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where a problem of a checkout lies."""

    level: int
    problem_id: int
    path: Path

    @property
    def name(self) -> str:
        """`1/23_Softmax`."""
        return f"{self.level}/{self.path.stem}"


def recognizes(path: Path) -> bool:  # noqa: ARG001 - a reader's signature
    """Say no: any problem file is in this format, and is read as one without a source's name."""
    return False


def read_task(selector: str, environment: Mapping[str, str] = os.environ) -> TaskSpec:
    """Return the task of a selector: what stands behind `kernelbench:`, in one of the forms above.

    Args:
        selector: what is looked for.
        environment: where the checkout is looked up.

    Raises:
        ConfigError: there is no such problem, or no checkout is named.
    """
    where, colon, size = selector.rpartition(":") if selector.endswith(f":{CPU}") else (selector, "", "")
    if where.endswith(".py"):
        path = Path(where).expanduser()
        return load_file(path, f"kernelbench/{path.stem}", for_cpu=bool(colon))
    found = _NUMBERS.fullmatch(where)
    if not found:
        raise _refusal(
            f"kernelbench:{selector!s}: expected LEVEL/ID",
            "kernelbench:1/23, kernelbench:1/23:cpu, kernelbench:FILE.py",
        )
    root = Path(found["root"]).expanduser() if found["root"] else checkout(environment)
    problem = problem_of(root, int(found["level"]), int(found["id"]))
    return load_file(problem.path, f"kernelbench/{problem.name}", for_cpu=size == CPU)


def load_file(path: Path, name: str, *, for_cpu: bool = False) -> TaskSpec:
    """Return the task of a problem file.

    Args:
        path: the file.
        name: the task's, less what is said of its size.
        for_cpu: make its sizes smaller, as far as they are numbers of module-level assignments.

    Raises:
        ConfigError: it cannot be read, or is no problem file.
    """
    text = _read(path)
    check_problem(text, str(path))
    if for_cpu:
        text = sized_for_cpu(text).text
    return TaskSpec(name=f"{name}:{CPU}" if for_cpu else name, source="kernelbench", text=text)


def checkout(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the checkout that the environment names.

    Raises:
        ConfigError: it names none.
    """
    named = next((environment[name] for name in VARIABLES if environment.get(name)), None)
    if named is None:
        raise _refusal(
            "no KernelBench checkout is named",
            f"set {VARIABLES[0]} to a checkout of github.com/ScalingIntelligence/KernelBench, "
            "or write kernelbench:PATH/1/23",
        )
    return Path(named).expanduser()


def list_problems(root: Path, level: int) -> tuple[ProblemFile, ...]:
    """Return the problems of a level, by number.

    Raises:
        ConfigError: there is no such level, or it cannot be used here.
    """
    if level == _HUB_LEVEL:
        raise _refusal(
            "KernelBench's level 4 cannot be evaluated: its problems load models from the Hugging Face hub when they "
            "are imported, and the judge has no network",
            f"levels {LEVELS[0]} to {LEVELS[-1]} need nothing but their files",
        )
    folder = _level_folder(root, level)
    numbered = [(path.name.partition("_")[0], path) for path in folder.glob("*.py")]
    return tuple(
        sorted(
            (
                ProblemFile(level=level, problem_id=int(number), path=path)
                for number, path in numbered
                if number.isascii() and number.isdecimal()
            ),
            key=lambda problem: problem.problem_id,
        )
    )


def problem_of(root: Path, level: int, problem_id: int) -> ProblemFile:
    """Return a problem of a KernelBench checkout: `level{N}/{ID}_{Name}.py`, also below `KernelBench/`.

    Raises:
        ConfigError: there is no such problem.
    """
    problems = list_problems(root, level)
    found = [problem for problem in problems if problem.problem_id == problem_id]
    if len(found) != 1:
        count = "no" if not found else str(len(found))
        there = f"; it has {problems[0].problem_id} to {problems[-1].problem_id}" if problems else ""
        raise ConfigError(
            f"{str(_level_folder(root, level))!r} holds {count} problem {problem_id} ({problem_id}_….py){there}"
        )
    return found[0]


def find_problem(root: Path, level: int, problem_id: int) -> Path:
    """Return the file of a problem, see `problem_of`.

    Raises:
        ConfigError: there is no such problem.
    """
    return problem_of(root, level, problem_id).path


def check_problem(text: str, shown: str) -> None:
    """Accept a text that parses and defines the three names at its top level.

    Args:
        text: the file.
        shown: how to call it in messages.

    Raises:
        ConfigError: it does not.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"problem file {shown!r}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"problem file {shown!r} is no Python text: {error}") from error
    defined = set(_names(tree.body))
    missing = [name for name in REQUIRED if name not in defined]
    if missing:
        raise ConfigError(
            f"problem file {shown!r} does not define {', '.join(missing)}; "
            "a problem defines Model, get_inputs and get_init_inputs"
        )


def _level_folder(root: Path, level: int) -> Path:
    folders = [folder for folder in (root / "KernelBench", root) if (folder / f"level{level}").is_dir()]
    if not folders:
        raise ConfigError(f"{str(root)!r} holds no level{level}/: it is no KernelBench checkout, or has no such level")
    return folders[0] / f"level{level}"


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Yield what the statements define in their module."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case ast.If(body=inner, orelse=other):
                yield from _names(inner)
                yield from _names(other)
            case _:
                pass


def _read(path: Path) -> str:
    return texts.read_text(path, f"problem file {str(path)!r}")


def _refusal(text: str, hint: str) -> ConfigError:
    error = ConfigError(text)
    error.add_note(hint)
    return error
