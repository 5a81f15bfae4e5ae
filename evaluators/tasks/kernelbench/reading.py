"""KernelBench's problem format: a Python file that defines `Model`, `get_inputs` and `get_init_inputs`.

`Model(*get_init_inputs())` is a torch module; `model(*get_inputs())` is the reference. Source of the format:
github.com/ScalingIntelligence/KernelBench, `KernelBench/level*/`. Here it is only parsed; the judge runs it.

    kernelbench:1/23            problem 23 of level 1 of the checkout that a variable names, as published
    kernelbench:1/23:cpu        the same with sizes that a CPU judges in seconds
    kernelbench:PATH/1/23       of the checkout at PATH
    kernelbench:FILE.py:cpu     a problem file, smaller
"""

from __future__ import annotations

import ast
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from evaluators.tasks.selectors import parse_problem, read_text
from messages.base import ConfigError
from messages.tasks import TaskSpec

REQUIRED = ("Model", "get_inputs", "get_init_inputs")
VARIABLES = ("KSEARCH_KERNELBENCH", "DATASET_ROOT")
"""Environment variables that may name the checkout; the second is the original K-Search's."""
LEVELS = (1, 2, 3)
CPU = "cpu"
"""Name of the size that is made for a CPU."""
_HUB_LEVEL = 4
_NUMBERS = re.compile(r"(?:(?P<root>.+)/)?(?:level)?(?P<level>\d+)/(?P<id>\d+)")


class ProblemFile(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a problem in a checkout."""

    level: int
    problem_id: int
    path: Path

    @property
    def name(self) -> str:
        """`1/23_Softmax`."""
        return f"{self.level}/{self.path.stem}"


def recognizes(path: Path) -> bool:  # noqa: ARG001 - a reader's signature
    """Return False: any problem file is in this format, and is read as one without a source's name."""
    return False


def read_task(selector: str, environment: Mapping[str, str] = os.environ) -> TaskSpec:
    """Return the task of a selector: the text after `kernelbench:`, in one of the forms above.

    Args:
        selector: the selector.
        environment: may name the checkout.

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
        name: the task's name, without its size.
        for_cpu: make its sizes smaller, as far as they are numbers in module-level assignments.

    Raises:
        ConfigError: it cannot be read, or is not a problem file.
    """
    text = read_text(path, f"problem file {str(path)!r}")
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
    """Check that a text parses and defines the three names at its top level.

    Args:
        text: text of the file.
        shown: name of the file in messages.

    Raises:
        ConfigError: it does not.
    """
    defined = set(_names(parse_problem(text, shown).body))
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
    """Yield the names that statements define in their module."""
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


def _refusal(text: str, hint: str) -> ConfigError:
    error = ConfigError(text)
    error.add_note(hint)
    return error


MOST_ELEMENTS = 1 << 18
"""Most elements of all inputs together, after capping for a CPU: about a MiB of float32."""
MOST_IMAGES, MOST_PIXELS = 4, 64
"""Largest batch, and extent, of images and volumes: networks do more work per element than with rows."""
_LEAST_SQUARE = 1024
"""Smaller numbers are often equal by chance."""
SMALLEST = 16
"""Numbers up to this are not sizes but kernel widths, strides, heads or axes; only a batch may be smaller."""
_SPATIAL = frozenset(["height", "width", "depth", "h", "w", "d", "length"])
_KEPT = frozenset({"image_size"})
"""Sizes that windows and patches must divide at every stage of a model; the batch is cut instead."""


class Step(msgspec.Struct, frozen=True):
    """Caps for sizes."""

    general: int
    spatial: int
    """Extents of images and volumes: a network that halves them five times needs some."""
    batch: int
    square: int | None = None
    """A batch that equals another size: both are capped alike, since they may be added to each other."""
    channels: int = 1
    """A power of two that must still divide channels that it divides."""

    def cap_of(self, name: str) -> int | None:
        """Return the cap for a number assigned to a name; null: it is not capped."""
        words = name.lower().split("_")
        if name.lower() in _KEPT:
            return None
        if "batch" in words:
            return self.batch
        if words[0] in _SPATIAL:
            return self.spatial
        return max(2, self.general // 8) if words[-1] == "groups" else self.general

    def of_images(self, text: str) -> Step:
        """Return the same for a problem with images or volumes as inputs."""
        spatial = sys.maxsize if _FIXED_WINDOW.search(text) else min(self.spatial, MOST_PIXELS)
        general = 2 * spatial if _NORM_OF_LAST.search(text) else self.general
        return msgspec.structs.replace(self, general=general, spatial=spatial, batch=min(self.batch, MOST_IMAGES))


STEPS = (
    Step(512, 512, 128),
    Step(256, 256, 64),
    Step(128, 128, 32),
    Step(64, 64, 16),
    Step(32, 64, 8),
    Step(16, 64, 4),
    Step(16, 64, 2),
    Step(16, 32, 2),
    Step(16, 16, 4),
    Step(16, 16, 2),
)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment with capped numbers."""

    name: str
    before: str
    """As in the file: `2048 * 2`."""
    after: str


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """A problem's text with smaller sizes."""

    text: str
    changes: tuple[Change, ...] = ()
    elements: int | None = None
    """Elements of all inputs together, by the arguments of `torch.rand` and the like; null: not known."""


def sized_for_cpu(text: str) -> Sized:
    """Return a problem in a size that a CPU judges in seconds; a small one unchanged.

    Args:
        text: a problem file that parses.
    """
    whole = Sized(text=text, elements=count_elements(text))
    if whole.elements is not None and whole.elements <= MOST_ELEMENTS and not _largest(text) > STEPS[0].general:
        return whole
    ranks = [len(shape) for shape in _input_shapes(text) or () if shape is not None]
    for step in STEPS:
        sized = capped(text, step.of_images(text) if max(ranks, default=0) >= _IMAGE_RANK else step)
        if sized.elements is not None and sized.elements <= MOST_ELEMENTS:
            return sized
    return sized


def capped(text: str, step: Step) -> Sized:
    """Return a problem with the numbers of its module-level assignments capped."""
    lines = text.encode().splitlines(keepends=True)
    changes: list[Change] = []
    tree = ast.parse(text)
    step = msgspec.structs.replace(step, square=_batch_that_is_a_size(tree), channels=_channels_divide_by(tree))
    for statement in reversed(tree.body):
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        edits = list(_edits(statement, step))
        if not edits:
            continue
        before = ast.unparse(statement.value)
        for number, value in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
            line = lines[number.lineno - 1]
            lines[number.lineno - 1] = line[: number.col_offset] + b"%d" % value + line[number.end_col_offset :]
        changes.append(Change(name=", ".join(_targets_of(statement)), before=before, after=_after(statement, edits)))
    sized = b"".join(lines).decode()
    return Sized(text=sized, changes=tuple(reversed(changes)), elements=count_elements(sized))


def _edits(statement: ast.Assign | ast.AnnAssign, step: Step) -> Iterator[tuple[ast.Constant, int]]:
    """Yield the numbers of an assignment that are too large, with their replacements."""
    for name, value in _pairs(statement):
        cap = step.cap_of(name)
        if cap is None:
            continue
        for node in _numbers(value):
            number = int(node.value)  # type: ignore[arg-type]
            own = step.general if number == step.square else cap
            smallest = 1 if "batch" in name.lower() else SMALLEST
            now = halved(number, max(own, smallest), divides_by=step.channels if "channels" in name else 1)
            if now != node.value:
                yield node, now


def _batch_that_is_a_size(tree: ast.Module) -> int | None:
    """Return a batch size that another assignment has as well; null if there is none."""
    batches: set[int] = set()
    sizes: set[int] = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for name, value in _pairs(statement):
                found = batches if "batch" in name.lower() else sizes
                found |= {int(node.value) for node in _numbers(value)}  # type: ignore[arg-type]
    return max((number for number in batches & sizes if number >= _LEAST_SQUARE), default=None)


def _channels_divide_by(tree: ast.Module) -> int:
    """Return the number that must still divide channels, which models split into quarters or groups."""
    names = (name for one in tree.body if isinstance(one, ast.Assign) for name, _ in _pairs(one))
    return 8 if any("groups" in name for name in names) else 4


def halved(number: int, cap: int, *, divides_by: int = 1) -> int:
    """Return the number, halved (rounded down) until it is at most the cap.

    Args:
        number: a size.
        cap: largest result.
        divides_by: a power of two that must still divide the result, if it divides the number.
    """
    kept = math.gcd(number, divides_by)
    while number > cap and number // 2 % kept == 0:
        number //= 2
    return number


def _pairs(statement: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of an assignment with their values: two for `h, w = 64, 32`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    value = statement.value
    if value is None:
        return
    first = targets[0]
    if isinstance(first, ast.Tuple) and isinstance(value, ast.Tuple) and len(first.elts) == len(value.elts):
        for target, part in zip(first.elts, value.elts, strict=True):
            if isinstance(target, ast.Name):
                yield target.id, part
    elif isinstance(first, ast.Name):
        yield first.id, value


def _numbers(value: ast.expr) -> Iterator[ast.Constant]:
    """Yield the whole numbers of an expression that consists of numbers, names and arithmetic; else none."""
    nodes = list(ast.walk(value))
    if all(isinstance(node, _PLAIN) for node in nodes):
        for node in nodes:
            if isinstance(node, ast.Constant) and type(node.value) is int:
                yield node


_PLAIN = (ast.Constant, ast.Name, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)


def _targets_of(statement: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        yield ast.unparse(target).strip("()")


def _after(statement: ast.Assign | ast.AnnAssign, edits: list[tuple[ast.Constant, int]]) -> str:
    """Return an assignment's new value as text. The tree is changed and not read afterwards."""
    for node, value in edits:
        node.value = value
    return ast.unparse(statement.value) if statement.value else ""


def _largest(text: str) -> int:
    """Return the largest number of the module-level assignments."""
    values = (
        abs(int(node.value))  # type: ignore[arg-type]
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        for node in _numbers(statement.value)
    )
    return max(values, default=0)


_IMAGE_RANK = 4
_NORM_OF_LAST = re.compile(r"nn\.LayerNorm\(")
"""As many channels as the doubled width: two published problems normalise one by the other."""
_FIXED_WINDOW = re.compile(r"(?<!Adaptive)AvgPool2d\((kernel_size=)?7\b")
"""Size of an image of 224 after five halvings: the network accepts no other."""
_MAKERS = frozenset(["rand", "randn", "randint", "ones", "zeros", "empty"])


def count_elements(text: str) -> int | None:
    """Return the number of elements in all tensors of `get_inputs`; null if the text does not tell."""
    shapes = _input_shapes(text)
    if not shapes or None in shapes:
        return None
    return sum(math.prod(shape) for shape in shapes if shape is not None)


def _input_shapes(text: str) -> list[tuple[int, ...] | None]:
    """Return the shapes of the tensors of `get_inputs`, in no order; null for an unknown one."""
    tree = ast.parse(text)
    known: dict[str, object] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                _bind(target, _value(statement.value, known), known)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"]
    calls = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)]
    return [shape for call in calls if _makes(call) for shape in [_shape(call, known)] if shape != ()]


def _makes(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _MAKERS
        and isinstance(function.value, ast.Name)
        and function.value.id == "torch"
    )


def _shape(call: ast.Call, known: Mapping[str, object]) -> tuple[int, ...] | None:
    """Return the shape of a created tensor; empty for one like another's, null if it is not known."""
    is_drawn = isinstance(call.func, ast.Attribute) and call.func.attr == "randint"
    sizes: list[object] = []
    for argument in call.args[-1:] if is_drawn else call.args:
        inner = argument.value if isinstance(argument, ast.Starred) else argument
        value = _value(inner, known)
        sizes += list(value) if isinstance(value, tuple) else [value]
    numbers = tuple(size for size in sizes if isinstance(size, int))
    if len(numbers) == len(sizes):
        return numbers
    return () if is_drawn else None


def _bind(target: ast.expr, value: object, known: dict[str, object]) -> None:
    if isinstance(target, ast.Name):
        known[target.id] = value
    elif isinstance(target, ast.Tuple) and isinstance(value, tuple) and len(value) == len(target.elts):
        for part, one in zip(target.elts, value, strict=True):
            _bind(part, one, known)


def _value(node: ast.expr, known: Mapping[str, object]) -> object:
    """Return the value of an expression of whole numbers: a number, a tuple of them; None: unknown."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return known.get(name)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part, known) for part in parts)
        case ast.BinOp(left=left, op=operation, right=right):
            return _combined(_value(left, known), operation, _value(right, known))
        case _:
            return None


def _combined(left: object, operation: ast.operator, right: object) -> object:
    if not (isinstance(left, int) and isinstance(right, int)):
        return None
    match operation:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() if right:
            return left // right
        case _:
            return None
