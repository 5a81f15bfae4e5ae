"""The sizes on which TritonBench times a problem: a class that makes inputs, and what its authors measured.

`performance_metrics/perf_{G,T}/golden_metrics/NAME_perf.py` holds the class, `golden_results/NAME.json` what an A100 of
theirs took. The figures are not used for speedups: golds are measured anew, here and now.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

import msgspec

from messages.base import ConfigError

_LEFT_OUT = {"TritonBench_v1", "TorchBench_v1", "performance_utils", "sys", "os", "json"}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What TritonBench's authors measured of a gold on one size, on their A100."""

    input_size: object
    """Shapes of tensors, and other arguments as they are."""
    ms: float
    gb_per_s: float = msgspec.field(name="GB/s")
    tflops: float = msgspec.field(name="TFLOPS")

    @property
    def bytes_moved(self) -> float:
        """As the problem's own formula counts them."""
        return self.gb_per_s * 1e9 * self.ms / 1e3

    @property
    def flops(self) -> float:
        """As the problem's own formula counts them."""
        return self.tflops * 1e12 * self.ms / 1e3


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the sizes of a problem."""

    text: str = ""
    """Defines the class `performance_metrics`, on a base of that module's name that `tracing.py` has."""
    measured: tuple[Measured, ...] = ()

    @property
    def count(self) -> int:
        """Return how many sizes there are: where one failed for the authors, there is one less."""
        return len(self.measured) if self.text else 0


def read_sizes(root: Path, suite: str, name: str) -> Sizes:
    """Return the sizes of a problem of a checkout; none where it has no such files.

    Raises:
        ConfigError: a file cannot be read.
    """
    folder = root / "performance_metrics" / f"perf_{suite}"
    program, results = folder / "golden_metrics" / f"{name}_perf.py", folder / "golden_results" / f"{name}.json"
    if not program.is_file() or not results.is_file():
        return Sizes()
    try:
        tree = ast.parse(program.read_text(encoding="utf-8"))
        measured = msgspec.json.decode(results.read_bytes(), type=tuple[Measured, ...], strict=False)
    except SyntaxError as error:
        raise ConfigError(f"perf file {str(program)!r}, line {error.lineno}: {error.msg}") from error
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot read {str(results)!r} and what belongs to it: {error}") from error
    kept = [node for node in tree.body if not _is_left_out(node)]
    for node in kept:
        if isinstance(node, ast.ClassDef):
            node.body = [part for part in node.body if not _runs(part)]
    return Sizes(text=ast.unparse(ast.Module(body=kept, type_ignores=[])) + "\n", measured=measured)


def _is_left_out(node: ast.stmt) -> bool:
    """Say whether a statement is about where files lie, or about running the file."""
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
