"""A test with smaller sizes, for Triton's interpreter: it takes a millisecond for each step of each program.

Every whole number of the test above a bound becomes the bound, so that what belongs together stays equal. What is no
size is left: seeds, and options of kernels. Where a gold needs other relations, it fails on the smaller test as it
would on such inputs.
"""

from __future__ import annotations

import ast

MOST = 128
"""Blocks of kernels are seldom larger, and some golds read past the end of anything smaller than a block."""
_NO_SIZES = ("seed", "block", "num_", "group", "stage", "warp", "dtype", "device")


def capped(text: str, most: int = MOST) -> str:
    """Return a test whose sizes are at most `most`."""
    return ast.unparse(_Capper(most).visit(ast.parse(text))) + "\n"


class _Capper(ast.NodeTransformer):
    def __init__(self, most: int) -> None:
        self._most = most

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Cap a whole number; odd ones stay odd."""
        value = node.value
        if type(value) is int and value > self._most:
            return ast.copy_location(ast.Constant(self._most - value % 2), node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Leave options that are no sizes."""
        return node if _is_no_size(node.arg or "") else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Leave what seeds a generator."""
        return node if _is_no_size(ast.unparse(node.func)) else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Leave variables that are called as what is no size."""
        match node.targets:
            case [ast.Name(id=name)] if _is_no_size(name):
                return node
            case _:
                return self.generic_visit(node)


def _is_no_size(name: str) -> bool:
    return any(word in name.lower() for word in _NO_SIZES)
