"""TritonBench's problems: `tritonbench:PATH#G/NAME`, PATH a checkout of thunlp/TritonBench or one problem file.

A problem is a Python file: the gold's kernels and functions, a line of `#`, and a test that calls the functions. G's
golds are Triton operators, T's are torch functions. Other files contain descriptions and, for the sizes that its
harness times, a class per problem that makes inputs. Here all of it is read by syntax trees; the judge runs it
(`tracing.py`).

    tritonbench:PATH#G/softmax_triton1        the arguments of the test
    tritonbench:PATH#G/softmax_triton1:cpu    the same with smaller sizes, for an interpreter
    tritonbench:PATH#T/gelu:perf              the sizes that are timed there
    tritonbench:PATH#T/gelu:test,perf/3       some of both
    tritonbench:PATH/data/TritonBench_G_v1/softmax_triton1.py
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from evaluators.tasks.selectors import parse_problem, read_text
from evaluators.tasks.tritonbench.packing import ending
from evaluators.tasks.workloads import choose
from messages.base import ConfigError
from messages.tasks import SourceFile, TaskRules, TaskSpec, Tolerance, Workload

Suite: TypeAlias = Literal["G", "T"]
SUITES: tuple[Suite, ...] = ("G", "T")
TEST, SMALL_TEST = "test", "cpu"
PROFILE = "tritonbench"
ENTRY_POINT = "ksearch_run"
_SEPARATOR = re.compile(r"^#{100,}[ \t]*$", re.MULTILINE)
_DRAWS = re.compile(
    r"dropout|rand|bernoulli|binomial|multinomial|normal_\(|torch\.normal|fractional_max_pool|manual_seed|philox"
)
_SEED = 42
TRACING = "tritonbench.2"
"""Part of every task's text, and so of its id. Changes when tracing gives other inputs for a test."""
_KINDS = {"TritonBench_G_v1": "G", "TritonBench_T_v1": "T"}


class ProblemParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a problem file."""

    suite: Suite
    name: str
    gold: str
    """Kernels and functions."""
    test: str
    """Code of the test, which calls the functions at its end."""
    functions: tuple[str, ...]
    """Functions of the gold that the test calls, in the gold's order; `Class.apply` for an autograd function's. Empty
    if the test launches kernels itself, or makes modules: then nothing can be recorded, as the judge reports."""
    draws: bool
    """True if the gold seems to draw random numbers."""


def read_task(selector: str) -> TaskSpec:
    """Return the task of the text after `tritonbench:`, in one of the forms above.

    Raises:
        ConfigError: there is no such problem, or the file is not one.
    """
    path, selection = _locate(selector)
    parts = read_problem(path)
    root = path.parent.parent.parent
    perf_text, count = read_sizes(root, parts.suite, parts.name)
    workloads = [Workload(name=TEST, dimensions={"size": -1}), Workload(name=SMALL_TEST, dimensions={"size": -2})]
    workloads += [Workload(name=f"perf/{place}", dimensions={"size": place}) for place in range(count)]
    chosen = choose(workloads, selection or TEST, f"{parts.suite}/{parts.name}")
    told = f":{selection}" if selection and selection != TEST else ""
    return TaskSpec(
        name=f"tritonbench/{parts.suite}/{parts.name}{told}",
        source="tritonbench",
        text=problem_text(parts, perf_text),
        tolerance=Tolerance(profile=PROFILE),
        rules=TaskRules(library_calls="allow"),
        workloads=chosen,
        files=(SourceFile(path="gold.py", text=parts.gold),),
        calling="function",
        entry_point=ENTRY_POINT,
        languages=("python",),
        notes=notes_for(parts.suite, parts.name, parts.gold, parts.functions, root),
    )


def recognizes(path: Path) -> bool:
    """Return True if a path is a checkout of TritonBench, or a problem file in one."""
    if path.is_dir():
        return any((path / "data" / kind).is_dir() for kind in _KINDS)
    return path.suffix == ".py" and path.parent.name in _KINDS


def problem_names(root: Path, suite: Suite) -> tuple[str, ...]:
    """Return the problems of a checkout, sorted.

    Raises:
        ConfigError: it is not a checkout.
    """
    folder = root / "data" / f"TritonBench_{suite}_v1"
    if not folder.is_dir():
        raise ConfigError(f"{str(root)!r} holds no data/{folder.name}/: it is no checkout of thunlp/TritonBench")
    return tuple(sorted(path.stem for path in folder.glob("*.py")))


def read_problem(path: Path) -> ProblemParts:
    """Read a problem file.

    Raises:
        ConfigError: it cannot be read, or is not a problem; names the line.
    """
    text = read_text(path, f"problem file {str(path)!r}")
    *_, found = (None, *_SEPARATOR.finditer(text))
    if found is None:
        raise ConfigError(
            f"problem file {str(path)!r} has no line of # between gold and test: it is no problem of TritonBench"
        )
    # One problem has two such lines, since it comes in two parts.
    gold, test = text[: found.start()], text[found.end() :]
    gold_tree = parse_problem(gold, str(path))
    test_tree = parse_problem(test, str(path), gold.count("\n"))
    functions = _called_functions(gold_tree, test_tree)
    if not functions and not _defined(gold_tree) & {
        node.id for node in ast.walk(test_tree) if isinstance(node, ast.Name)
    }:
        raise ConfigError(f"problem file {str(path)!r}: its test uses nothing of the gold")
    return ProblemParts(
        suite="T" if _KINDS.get(path.parent.name) == "T" else "G",
        name=path.stem,
        gold=_imports_of(test_tree, gold_tree) + gold.strip("\n") + "\n",
        test=_test_text(test_tree, path.stem),
        functions=functions,
        draws=bool(_DRAWS.search(gold)),
    )


def problem_text(parts: ProblemParts, perf_text: str = "") -> str:
    """Return the problem file for the judge.

    Args:
        parts: parts of the problem.
        perf_text: code that makes the timed inputs; empty: there are none.
    """
    seed = _SEED if parts.draws else None
    timed = f'\nPERF = """\\\n{_quoted(perf_text)}"""\n' if perf_text else '\nPERF = ""\n'
    return f'''"""TritonBench-{parts.suite}, {parts.name}: the calls of its test, and its gold."""

from evaluators.tasks.tritonbench.tracing import Trace, TracedModel

TRACING = {TRACING!r}
FUNCTIONS = {parts.functions!r}
TEST = """\\
{_quoted(parts.test)}"""
{timed}
TRACE = Trace(TEST, FUNCTIONS, seed={seed}, perf=PERF)


class Model(TracedModel):
    def __init__(self):
        super().__init__(TRACE, has_wide_form={parts.suite == "T"})


def get_inputs(size=-1):
    return [TRACE.calls(size)]


def get_init_inputs():
    return []
'''


def _locate(selector: str) -> tuple[Path, str]:
    """Return a problem file and the selected workloads."""
    where, sharp, problem = selector.partition("#")
    if not sharp:
        path, colon, selection = where.rpartition(".py:")
        file = Path(f"{path}.py" if colon else where).expanduser()
        if file.is_dir():
            raise ConfigError(
                f"tritonbench:{selector}: which problem? tritonbench:{where}#G/NAME or #T/NAME; G has "
                f"{len(problem_names(file, 'G'))}, T has {len(problem_names(file, 'T'))}"
            )
        return file, selection if colon else ""
    problem, _, selection = problem.partition(":")
    suite, slash, name = problem.partition("/")
    if not slash or suite not in SUITES:
        raise ConfigError(f"tritonbench:{selector}: expected PATH#G/NAME or PATH#T/NAME")
    names = problem_names(Path(where).expanduser(), "T" if suite == "T" else "G")
    name = name.removesuffix(".py")
    if name not in names:
        close = [known for known in names if name.lower() in known.lower()][:6]
        hint = f"; there are {', '.join(close)}" if close else ""
        raise ConfigError(f"tritonbench:{selector}: TritonBench-{suite} has no problem {name!r}{hint}")
    return Path(where).expanduser() / "data" / f"TritonBench_{suite}_v1" / f"{name}.py", selection


def _called_functions(gold: ast.Module, test: ast.Module) -> tuple[str, ...]:
    """Return the gold's functions that the test calls: those that are not kernels, and `apply` of classes."""
    held = {name for node in ast.walk(test) if (name := _applied(node))}
    used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    hidden = {node.name for node in ast.walk(test) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return tuple(dict.fromkeys(_functions(gold.body, used - hidden, held)))


def _defined(gold: ast.Module) -> set[str]:
    return {node.name for node in ast.walk(gold) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _functions(body: Sequence[ast.stmt], used: set[str], held: set[str]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) if name in used and not _is_kernel(node):
                yield name
            case ast.ClassDef(name=name) if name in held:
                yield f"{name}.apply"
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in used and _applied(value):
                yield name
            case ast.If(body=inner, orelse=other) | ast.Try(body=inner, orelse=other):
                yield from _functions([*inner, *other], used, held)
            case _:
                pass


def _applied(node: ast.AST) -> str:
    """Return the class with the `apply`; empty: none."""
    match node:
        case ast.Attribute(attr="apply", value=ast.Name(id=name)):
            return name
        case _:
            return ""


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(one) for one in function.decorator_list)


def _imports_of(test: ast.Module, gold: ast.Module) -> str:
    """Return the test's imports that the gold uses and lacks: upstream they are in the same file."""
    bound = {alias.asname or alias.name for node in ast.walk(gold) for alias in _aliases(node)}
    used = {node.id for node in ast.walk(gold) if isinstance(node, ast.Name)}
    lines = [
        ast.unparse(node)
        for node in test.body
        if any((alias.asname or alias.name) in used - bound for alias in _aliases(node))
    ]
    return "".join(f"{line}\n" for line in lines)


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


def _test_text(tree: ast.Module, name: str) -> str:
    """Return a test that calls itself, without imports of the problem from itself."""
    whole = [part for node in tree.body for part in _as_program(node)]
    body = [node for node in whole if not (isinstance(node, ast.ImportFrom) and node.module == name)]
    for function in ast.walk(ast.Module(body=body, type_ignores=[])):
        if isinstance(function, ast.FunctionDef):
            kept = [one for one in function.body if not (isinstance(one, ast.ImportFrom) and one.module == name)]
            function.body = kept or [ast.Pass()]
    tests = [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    text = ast.unparse(ast.Module(body=body, type_ignores=[])) + "\n"
    calls = {name for one in body for node in ast.walk(one) if (name := _called(node))}
    return text if not tests or set(tests) & calls else f"{text}{tests[-1]}()\n"


def _as_program(node: ast.stmt) -> list[ast.stmt]:
    """Return a statement's effect when the file is run as a program."""
    return node.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) else [node]


def _called(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name
        case _:
            return ""


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


_LEFT_OUT = {"TritonBench_v1", "TorchBench_v1", "performance_utils", "sys", "os", "json"}


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """TritonBench's own measurement of a gold on one size, which shows that the size works."""

    input_size: object
    ms: float
    gb_per_s: float = msgspec.field(name="GB/s")
    tflops: float = msgspec.field(name="TFLOPS")


def read_sizes(root: Path, suite: str, name: str) -> tuple[str, int]:
    """Return the text of `performance_metrics`, which makes the timed inputs, and the number of sizes; or `("", 0)`.

    A size that failed for TritonBench's authors has no result, and does not count.

    Raises:
        ConfigError: a file cannot be read.
    """
    folder = root / "performance_metrics" / f"perf_{suite}"
    program, results = folder / "golden_metrics" / f"{name}_perf.py", folder / "golden_results" / f"{name}.json"
    if not program.is_file() or not results.is_file():
        return "", 0
    try:
        tree = ast.parse(program.read_text(encoding="utf-8"))
        measured = msgspec.json.decode(results.read_bytes(), type=tuple[_Result, ...], strict=False)
    except SyntaxError as error:
        raise ConfigError(f"perf file {str(program)!r}, line {error.lineno}: {error.msg}") from error
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot read {str(results)!r} and what belongs to it: {error}") from error
    kept = [node for node in tree.body if not _is_left_out_of_sizes(node)]
    for node in kept:
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not _runs(part)]
    return ast.unparse(ast.Module(body=kept, type_ignores=[])) + "\n", len(measured)


def _is_left_out_of_sizes(node: ast.stmt) -> bool:
    """Return True if a statement is about paths of files, or about running the file."""
    match node:
        case ast.ImportFrom(module=module):
            return (module or "").partition(".")[0] in _LEFT_OUT
        case ast.Import(names=names):
            return all(alias.name in _LEFT_OUT for alias in names)
        case ast.Expr(value=ast.Call(func=function)):
            return ast.unparse(function).startswith("sys.path")
        case ast.If(test=test):
            return "__name__" in ast.unparse(test)
        case _:
            return False


def _runs(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in {"run_benchmark", "get_do_bench_config", "get_runtime"}


_LICENCE = {
    "G": "Problem: TritonBench-G (thunlp/TritonBench, Apache-2.0); the gold is of {repo}, under its licence.",
    "T": "Problem: TritonBench-T (thunlp/TritonBench, Apache-2.0).",
}
_FILES = {"G": "TritonBench_G_v1.json", "T": "TritonBench_T_v1.jsonl"}
"""Both contain one JSON list, despite their names."""
_MOST_INSTRUCTION = 6000

_CONTRACT = """How a candidate is called here:
- The file defines {functions} with the same arguments as the gold below, and returns and writes what that does:
  same shapes and dtypes. Kernels are Triton's; the functions around them launch them.
- The calls that TritonBench's own test makes are made one after the other, on inputs drawn anew each time, and on
  others of adversarial values. All tensors that come of them are compared: what is returned, and what is written to.
- Inputs are on the device where the reference runs; make tensors by `empty_like`, or on the device of an input.
- The file ends with these lines, as they are:

```python
{ending}```"""

_EXAMPLE = """A file of this form for another problem, `add(x, y)`, less those last lines:

```python
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(x_ptr + offsets, mask=inside) + tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, total, mask=inside)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(out.numel(), 1024),)](x, y, out, out.numel(), BLOCK=1024)
    return out
```"""


class _Entry(msgspec.Struct, frozen=True):
    """Entry of a checkout's list for a problem; G and T have different fields."""

    file: str
    repo: str = ""
    comp_instru: str = ""
    name: str = ""
    func_inputs: str = ""
    description: str = ""
    math: str = ""
    other: str = ""
    difficulty: str | int = ""


def notes_for(suite: str, name: str, gold: str, functions: Sequence[str], root: Path) -> str:
    """Return the definition, the contract, an example and the source of the problem.

    Args:
        suite: `G` or `T`.
        name: name of the problem.
        gold: text of its gold.
        functions: functions that candidates must define.
        root: path of the checkout; a problem file elsewhere has no definition but its gold.

    Raises:
        ConfigError: the checkout's list cannot be read.
    """
    entry = _entry(root / "data" / _FILES[suite], f"{name}.py")
    told = [_definition(entry)] if entry is not None else []
    told.append(f"The gold:\n\n```python\n{gold}```")
    told.append(_CONTRACT.format(functions=", ".join(f"`{one}`" for one in functions), ending=ending(functions)))
    told.append(_EXAMPLE)
    told.append(_LICENCE[suite].format(repo=entry.repo if entry is not None and entry.repo else "a third party"))
    return "\n\n".join(told) + "\n"


def _definition(entry: _Entry) -> str:
    """Return the problem's description in the list's own words, shortened if it is very long."""
    parts = [
        " ".join(entry.comp_instru.split())[:_MOST_INSTRUCTION],
        entry.description,
        f"Signature: {entry.func_inputs}" if entry.func_inputs else "",
        f"Definition: {entry.math}" if entry.math else "",
        entry.other,
        f"Difficulty, by the benchmark's authors: {entry.difficulty} of 5." if entry.difficulty else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _entry(path: Path, file: str) -> _Entry | None:
    if not path.is_file():
        return None
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_Entry], strict=False)
    except (OSError, msgspec.MsgspecError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from error
    return next((entry for entry in entries if entry.file == file), None)
