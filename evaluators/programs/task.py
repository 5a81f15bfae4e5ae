"""Program tasks: read from two files, and said in words for models. Runs nothing of either file.

- `load_program(path, evaluator, *, timeout_s, memory_gib) -> TaskSpec`, raises ConfigError
- `describe_program(task: TaskSpec) -> TaskDescription`
- `initial_candidate(task: TaskSpec) -> Candidate`
- `probe_interpreter() -> Target`
"""

from __future__ import annotations

import ast
import platform
from hashlib import blake2b
from pathlib import Path

from messages.base import ConfigError
from messages.tasks import Candidate, Scorer, SourceFile, Target, TaskDescription, TaskSpec

MAIN_PATH = "program.py"
"""Name of a candidate's main file."""
DEFAULT_TIMEOUT_S = 60.0
DEFAULT_MEMORY_GIB = 8.0
_MAX_BYTES = 1 << 20
_MARKER = "EVOLVE-BLOCK-START"


def load_program(
    program: str, evaluator: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, memory_gib: float = DEFAULT_MEMORY_GIB
) -> TaskSpec:
    """Return the task of improving a program by what an evaluator file says of it.

    Args:
        program: path of the initial program.
        evaluator: path of the file that defines `evaluate(program_path)`.
        timeout_s: how long `evaluate` may take for one program.
        memory_gib: how much memory one program may take.

    Raises:
        ConfigError: a file cannot be read, or is none of its kind.
    """
    text = _read(program, "program").decode()
    _parsed(text, program, "program")
    content = _read(evaluator, "evaluator file")
    tree = _parsed(content.decode(), evaluator, "evaluator file")
    if not any(_binds(statement, "evaluate") for statement in ast.walk(tree)):
        raise ConfigError(f"evaluator file {evaluator!r} does not define evaluate(program_path)")
    return TaskSpec(
        name=Path(program).stem,
        source="program",
        text=text,
        scorer=Scorer(
            path=str(Path(evaluator).expanduser().absolute()),
            digest=blake2b(content, digest_size=16).hexdigest(),
            description=_description(tree),
            timeout_s=timeout_s,
            memory_bytes=int(memory_gib * 2**30),
        ),
    )


def initial_candidate(task: TaskSpec) -> Candidate:
    """Return the program that a search starts from, as a candidate."""
    return Candidate(language="python", entry_point="", files=(SourceFile(path=MAIN_PATH, text=task.text),))


def describe_program(task: TaskSpec) -> TaskDescription:
    """Say in words what there is to improve; knows only what stands in the two files."""
    said = task.scorer.description if task.scorer else ""
    sections = [
        "# Task: improve a Python program\n\nEach program is given to an evaluator, which runs it and returns a score, "
        "`combined_score`: the larger the better. There is no reference output: the score alone counts.",
        f"# What the evaluator says of itself\n\n{said}" if said else "",
        f"# The initial program\n\n```python\n{task.text.rstrip()}\n```",
        _contract(task.text),
    ]
    return TaskDescription(
        task_id=task.task_id,
        name=task.name,
        language="python",
        tensors=(),
        prompt="\n\n".join(section for section in sections if section),
        entry_point="",
        bytes_moved=0,
    )


def probe_interpreter() -> Target:
    """Say what runs programs here: the interpreter that runs this."""
    toolchain = f"{platform.python_implementation()} {platform.python_version()}"
    return Target(arch=platform.machine(), march="", toolchain=toolchain, device=_cpu_name())


def _contract(text: str) -> str:
    kept = (
        "Change only what stands between the lines `# EVOLVE-BLOCK-START` and `# EVOLVE-BLOCK-END`; keep these lines "
        "and everything outside them as it is."
        if _MARKER in text
        else "Keep the names and the parameters of its functions and classes: the evaluator uses some of them."
    )
    return f"# Contract\n\nReturn a complete program in one file. {kept}"


def _description(tree: ast.Module) -> str:
    """Return the docstrings of the evaluator file and of its `evaluate`."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    told = [tree, *(function for function in functions if function.name == "evaluate")]
    return "\n\n".join(said for node in told if (said := ast.get_docstring(node)))


def _binds(node: ast.AST, name: str) -> bool:
    match node:
        case ast.FunctionDef(name=bound) | ast.ClassDef(name=bound) | ast.Name(id=bound, ctx=ast.Store()):
            return bound == name
        case ast.alias():
            return (node.asname or node.name) in (name, "*")
        case _:
            return False


def _read(path: str, kind: str) -> bytes:
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{kind} {path!r} is larger than 1 MiB; is it the right file?")
        content = file.read_bytes()
        content.decode()
    except OSError as error:
        raise ConfigError(f"cannot read {kind} {path!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{kind} {path!r} is not UTF-8 text (byte {error.start})") from error
    return content


def _parsed(text: str, path: str, kind: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{kind} {path!r}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"{kind} {path!r} is no Python text: {error}") from error


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
