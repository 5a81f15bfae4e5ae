"""Constructs in Python that a person may want to look at. By its syntax tree: comments and docstrings do not matter."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluators.build.policy.findings import Finding

_MODULES = {
    "native code": {"ctypes", "cffi", "mmap", "_ctypes"},
    "interpreter": {"gc", "inspect", "importlib", "atexit", "faulthandler", "builtins", "sysconfig"},
    "process": {"multiprocessing", "subprocess", "signal", "concurrent", "pty", "resource"},
    "thread": {"threading", "_thread", "queue", "asyncio"},
    "network": {"socket", "urllib", "http", "requests", "httpx", "ftplib", "ssl"},
    "library": {"numpy", "scipy", "cupy", "numba", "jax", "tensorflow", "onnxruntime", "mkl", "cublas"},
    "files": {"tempfile", "shutil", "pickle", "shelve", "sqlite3"},
}
"""Modules by subject."""
_IMPORTED = {module: kind for kind, modules in _MODULES.items() for module in modules}

_NATIVE = {"ctypes", "_ctypes", "cffi", "_cffi_backend", "CDLL", "PyDLL", "cdll", "pydll", "load_library", "dlopen"} | {
    "__array_interface__",
    "__array_struct__",
    "ctypeslib",
}
"""Names by which functions of shared libraries are called, or numpy accesses memory by its address."""

_CALLED = {"exec", "eval", "compile", "__import__", "open", "globals", "vars", "setattr", "delattr"}
_ATTRIBUTES = {
    "_getframe": "frames",
    "f_back": "frames",
    "f_locals": "frames",
    "f_globals": "frames",
    "currentframe": "frames",
    "__globals__": "interpreter",
    "__code__": "interpreter",
    "__subclasses__": "interpreter",
    "__closure__": "interpreter",
    "get_objects": "interpreter",
    "get_referrers": "interpreter",
    "settrace": "interpreter",
    "setprofile": "interpreter",
    "Stream": "stream",
    "ExternalStream": "stream",
    "CUDAGraph": "graph",
    "make_graphed_callables": "graph",
    "_version": "tensor identity",
    "as_subclass": "tensor subclass",
    "_make_subclass": "tensor subclass",
    "_make_wrapper_subclass": "tensor subclass",
    "load_inline": "inline code",
    "cpp_extension": "inline code",
    "fork": "process",
    "_exit": "process",
    "system": "process",
    "popen": "process",
    "kill": "process",
    "environ": "environment",
}
_DISPATCHER = {"_dispatch_library", "_dispatch_tls_set_dispatch_key_excluded", "_destroy", "get_kernel"}
"""Names that could undo the denial of operators."""

_PATCHED = {"torch", "time", "triton", "builtins", "sys"}
_SETTINGS = {"backends", "config", "_config", "knobs", "ops", "manual_seed"}
"""Attributes of those modules that honest programs set, directly or below."""
_PATHS = ("/proc/", "/sys/", "/dev/shm")  # noqa: S108 - looked for in candidates
_INSIDES = ("torch.library", "torch._C", "torch._dynamo", "torch._inductor", "torch.utils.cpp_extension")
_MAX_CHAIN = 12


def look(text: str) -> list[Finding]:
    """Return the findings, in the order of their lines."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [Finding("no Python that can be read", 1)]
    names = _module_names(tree)
    found = [finding for node in ast.walk(tree) for finding in _of_node(node, names)]
    return sorted(found, key=lambda finding: finding.line)


def reach_past_torch(text: str) -> Finding | None:
    """Return the place where a text accesses functions of shared libraries; None if there is none.

    torch's own libraries export a BLAS that its dispatcher does not control. Programs cannot compile anything where
    they run, so these names have no other use there.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = (Finding(name, line) for node in ast.walk(tree) for name, line in _names_of(node) if name in _NATIVE)
    return min(found, key=lambda finding: finding.line, default=None)


def _names_of(node: ast.AST) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Import() | ast.ImportFrom():
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in (*modules, *(alias.name for alias in node.names)):
                yield from ((part, node.lineno) for part in name.split("."))
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
            yield name, node.lineno
        case _:
            pass


def _of_node(node: ast.AST, names: dict[str, str]) -> Iterator[Finding]:
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from _of_import(node)
        case ast.Call():
            yield from _of_call(node, names)
        case ast.Attribute(attr=name):
            yield from _of_attribute(name, node.lineno)
        case ast.Compare() | ast.Constant():
            yield from _of_value(node)
        case _:
            for target in _targets(node):
                yield from _of_target(target, names)


def _of_value(node: ast.Compare | ast.Constant) -> Iterator[Finding]:
    """Find comparisons of tensors' addresses (by which results of other calls are found again), and paths."""
    if isinstance(node, ast.Compare):
        if any(_is_pointer(part) for part in (node.left, *node.comparators)):
            yield Finding("comparison of pointers", node.lineno)
    elif isinstance(node.value, str) and any(path in node.value for path in _PATHS):
        yield Finding("path of the system", node.lineno)


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    names = [alias.name for alias in node.names]
    for module in names if isinstance(node, ast.Import) else [node.module or ""]:
        kind = _IMPORTED.get(module.partition(".")[0])
        if kind is not None:
            yield Finding(f"{kind}: import of {module}", node.lineno)
        if module.startswith(_INSIDES):
            yield Finding(f"torch's insides: import of {module}", node.lineno)
    for name in names if isinstance(node, ast.ImportFrom) else ():
        yield from _of_attribute(name, node.lineno)


def _of_attribute(name: str, line: int) -> Iterator[Finding]:
    if name in _DISPATCHER:
        yield Finding(f"operators replaced: {name}", line, is_forbidden=True)
    elif name in _ATTRIBUTES:
        yield Finding(f"{_ATTRIBUTES[name]}: {name}", line)


def _of_call(call: ast.Call, names: dict[str, str]) -> Iterator[Finding]:
    if isinstance(call.func, ast.Name) and call.func.id in _CALLED:
        yield Finding(f"call of {call.func.id}", call.lineno, _sets_foreign_attribute(call, names))
    chain = _chain(call.func, names)
    registers = chain[-1:] == ["Library"] or chain[:2] == ["torch", "library"]
    if registers and any(_is_aten(argument) for argument in call.args[:1]):
        yield Finding("operators replaced: a registration for aten", call.lineno, is_forbidden=True)


def _is_aten(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and str(argument.value).partition("::")[0] == "aten"


def _of_target(target: ast.AST, names: dict[str, str]) -> Iterator[Finding]:
    """Find assignments to objects of others: `torch.allclose = …`, `sys.modules["torch"] = …`."""
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _of_target(part, names)
    chain = _chain(target.value if isinstance(target, ast.Subscript) else target, names)
    is_module_table = isinstance(target, ast.Subscript) and chain == ["sys", "modules"]
    is_foreign = isinstance(target, ast.Attribute) and _is_foreign(chain)
    if is_module_table or is_foreign:
        yield Finding(f"replaced: {'.'.join(chain)}", getattr(target, "lineno", 1), is_forbidden=True)


def _is_foreign(chain: list[str]) -> bool:
    return len(chain) > 1 and chain[0] in _PATCHED and not _SETTINGS & set(chain[1:])


def _sets_foreign_attribute(call: ast.Call, names: dict[str, str]) -> bool:
    if not (isinstance(call.func, ast.Name) and call.func.id in {"setattr", "delattr"} and call.args):
        return False
    chain = _chain(call.args[0], names)
    return bool(chain) and chain[0] in _PATCHED and not _SETTINGS & set(chain[1:])


def _is_pointer(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "data_ptr"


def _module_names(tree: ast.Module) -> dict[str, str]:
    """Return the modules by their names in this text: `import torch.nn as n` gives n → torch.nn."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _chain(node: ast.AST, names: dict[str, str]) -> list[str]:
    """Return the names of `a.b.c`, with the full name of an imported first one; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _MAX_CHAIN:
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return []
    return [*names[node.id].split("."), *parts]
