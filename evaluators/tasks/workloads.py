"""The workloads that a problem file names, read from its text: nothing of it is run.

    WORKLOADS = {"short": {"rows": 64}, "shapes/long": {"rows": 4096}, "shapes/odd": {"rows": 1021}}
    HIDDEN_WORKLOADS = {"held-out": {"rows": 517}}

Both are literals: name to dimension to value. `get_inputs` and `get_init_inputs` take as many of the dimensions as they
need, by name. The part before a name's slash is a group. A file without `WORKLOADS` makes one kind of inputs and names
none, as in KernelBench.

- `read_workloads(text: str, shown: str) -> tuple[Workload, ...]`, raises ConfigError
- `choose(workloads, selection: str, shown: str) -> tuple[Workload, ...]`, raises ConfigError
- `text_with(text: str, workloads) -> str`
- `selections(workloads) -> tuple[str, ...]`
- `standalone_text(text: str, workload: Workload) -> str`
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from messages.base import ConfigError
from messages.tasks import Dimension, Workload

SHOWN, HIDDEN = "WORKLOADS", "HIDDEN_WORKLOADS"
_NAME = re.compile(r"[\w][\w .+=x/-]{0,59}")
_MOST = 256
_FUNCTIONS = ("get_inputs", "get_init_inputs")
_LINE = 110


def read_workloads(text: str, shown: str) -> tuple[Workload, ...]:
    """Return the workloads named in a file that parses, in its order, hidden ones last; none if it names none.

    Args:
        text: text of the file.
        shown: name of the file in messages.

    Raises:
        ConfigError: the table is not a literal of the form above, or no function takes one of its dimensions.
    """
    tree = ast.parse(text)
    found = [
        Workload(name=name, dimensions=dimensions, hidden=variable == HIDDEN)
        for variable in (SHOWN, HIDDEN)
        for name, dimensions in _table(tree, variable, shown)
    ]
    names = [workload.name for workload in found]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"problem file {shown!r} names workload {double!r} twice")
    if found and all(workload.hidden for workload in found):
        raise ConfigError(f"problem file {shown!r} has {HIDDEN} but no {SHOWN}: something must be shown and timed")
    if len(found) > _MOST:
        raise ConfigError(f"problem file {shown!r} names {len(found)} workloads; {_MOST} are the most")
    _check_functions(tree, found, shown)
    return tuple(found)


def choose(workloads: Sequence[Workload], selection: str, shown: str) -> tuple[Workload, ...]:
    """Return the workloads of a selection: names or groups, separated by commas.

    Raises:
        ConfigError: there is no such workload or group, or only hidden ones are named.
    """
    wanted = [word.strip() for word in selection.split(",")]
    known = selections(workloads)
    if unknown := next((word for word in wanted if word not in known), None):
        close = difflib.get_close_matches(unknown, known, n=1)
        suggestion = f"; did you mean {close[0]!r}?" if close else ""
        there = ", ".join(known) or "it names no workloads"
        raise ConfigError(f"problem {shown!r} has no workloads {unknown!r}{suggestion} (there are: {there})")
    chosen = tuple(workload for workload in workloads if {workload.name, _group(workload)} & set(wanted))
    if all(workload.hidden for workload in chosen):
        raise ConfigError(
            f"problem {shown!r}: {selection!r} are hidden workloads only; name some to be shown and timed"
        )
    return chosen


def selections(workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Return the possible selections: groups, names of workloads without a group, then names in groups."""
    found = list(workloads)
    first = dict.fromkeys(_group(workload) or workload.name for workload in found)
    return tuple(dict.fromkeys([*first, *(workload.name for workload in found)]))


def text_with(text: str, workloads: Sequence[Workload]) -> str:
    """Return a file's text with only these workloads, and none of them hidden."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for variable in (HIDDEN, SHOWN):
        statement = _assignment(tree, variable)
        if statement is None or statement.end_lineno is None:
            continue
        shown = [workload for workload in workloads if not workload.hidden]
        kept = _written(shown) if variable == SHOWN else ""
        old = ast.literal_eval(statement.value)
        if variable == SHOWN and list(old.items()) == [(one.name, one.dimensions) for one in shown]:
            continue
        blank = [""] * (statement.end_lineno - statement.lineno)
        lines[statement.lineno - 1 : statement.end_lineno] = [kept, *blank]
        tree = ast.parse("".join(lines)) if variable == HIDDEN else tree
        lines = "".join(lines).splitlines(keepends=True)
    return "".join(lines)


def standalone_text(text: str, workload: Workload) -> str:
    """Return a problem file with functions that take no arguments and make the inputs of one workload."""
    defined = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    lines = ["", "", f"# As judged: workload {workload.name!r}."]
    for name in _FUNCTIONS:
        function = defined.get(name)
        takes_all = function is None or function.args.kwarg is not None
        taken = set(workload.dimensions) if takes_all else {argument.arg for argument in _arguments(function)}
        given = [f"{one}={value!r}" for one, value in workload.dimensions.items() if one in taken]
        if given:
            lines.append(f"{name} = __import__('functools').partial({name}, {', '.join(given)})")
    return text.rstrip("\n") + "\n".join(lines) + "\n"


def _written(workloads: Sequence[Workload]) -> str:
    entries = [f"{_quoted(one.name)}: {_literal(one.dimensions)}" for one in workloads]
    one_line = f"{SHOWN} = {{{', '.join(entries)}}}\n"
    if len(one_line) <= _LINE:
        return one_line
    return "".join([f"{SHOWN} = {{\n", *(f"    {entry},\n" for entry in entries), "}\n"])


def _literal(dimensions: dict[str, Dimension]) -> str:
    values = (_quoted(value) if isinstance(value, str) else repr(value) for value in dimensions.values())
    return f"{{{', '.join(f'{_quoted(name)}: {value}' for name, value in zip(dimensions, values, strict=True))}}}"


def _quoted(text: str) -> str:
    return repr(text) if '"' in text or "\\" in text or not text.isprintable() else f'"{text}"'


def _table(tree: ast.Module, variable: str, shown: str) -> Iterator[tuple[str, dict[str, Dimension]]]:
    """Yield the entries of a table; none if it does not exist."""
    statement = _assignment(tree, variable)
    if statement is None:
        return
    where = f"problem file {shown!r}, line {statement.lineno}: {variable}"
    try:
        table: object = ast.literal_eval(statement.value)
    except ValueError:
        raise ConfigError(f"{where} must be a literal: it is read without running the file") from None
    if not isinstance(table, dict) or not table:
        raise ConfigError(f'{where} must be a dict with an entry per workload: {{"short": {{"rows": 64}}}}')
    for name, dimensions in table.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"{where}: {name!r} is no name: letters, digits, blanks and ._+=/- are, 60 at most")
        if not isinstance(dimensions, dict) or not dimensions or not all(map(_is_dimension, dimensions.items())):
            raise ConfigError(
                f"{where}: workload {name!r} must be a dict from dimensions to numbers, texts or booleans"
            )
        yield name, dimensions


def _is_dimension(item: tuple[object, object]) -> bool:
    name, value = item
    return isinstance(name, str) and name.isidentifier() and isinstance(value, bool | int | float | str)


def _assignment(tree: ast.Module, variable: str) -> ast.Assign | None:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if name == variable:
                return statement
            case _:
                pass
    return None


def _check_functions(tree: ast.Module, workloads: Sequence[Workload], shown: str) -> None:
    """Check that every dimension is taken by a function, and that every argument is given."""
    functions = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in _FUNCTIONS and workloads
    ]
    if len(functions) != len(_FUNCTIONS) or any(function.args.kwarg for function in functions):
        return
    taken = {argument.arg for function in functions for argument in _arguments(function)}
    for workload in workloads:
        if idle := next((name for name in workload.dimensions if name not in taken), None):
            raise ConfigError(
                f"problem file {shown!r}: workload {workload.name!r} gives {idle!r}, which neither get_inputs nor "
                "get_init_inputs takes"
            )
        for function in functions:
            if missing := next((name for name in _needed(function) if name not in workload.dimensions), None):
                raise ConfigError(
                    f"problem file {shown!r}: {function.name} takes {missing!r}, which workload {workload.name!r} "
                    f"does not give"
                )


def _arguments(function: ast.FunctionDef | None) -> list[ast.arg]:
    return [] if function is None else [*function.args.args, *function.args.kwonlyargs]


def _needed(function: ast.FunctionDef) -> list[str]:
    """Return the arguments without a default."""
    given = function.args
    positional = given.args[: len(given.args) - len(given.defaults)]
    keyword = [one for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return [argument.arg for argument in (*positional, *keyword)]


def _group(workload: Workload) -> str:
    group, slash, _ = workload.name.partition("/")
    return group if slash else ""
