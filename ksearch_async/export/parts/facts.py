"""Facts of an exported module. Here are placeholders; each export writes its own values instead."""

from __future__ import annotations

TITLE = "kernel"
"""The task's name."""
ENTRY_POINT = "ksearch_run"
SOURCES: dict[str, str] = {}
"""The candidate's files, the main file first, exactly as they were judged."""
ARGUMENTS: tuple[tuple[str, tuple[int, ...], str], ...] = ()
"""Name, shape and dtype of what the kernel is given: the arguments of the reference's `forward`, then its state."""
CALLING = "module"
"""Form of a kernel in Python: a `module`'s class, or a `function`."""
NUMBERS: tuple[tuple[str, int, float], ...] = ()
"""Name, place among what the kernel is given, and value of numbers that stand among the tensors."""
OUTPUTS: tuple[tuple[str, tuple[int, ...], str], ...] = ()
BOUNDS: tuple[tuple[float, float | None, bool], ...] = ()
"""Tolerance of each output: relative part, absolute part (null: what the reference itself loses), and whether one
of the two suffices instead of their sum."""
REFERENCE = ""
"""The problem file: `Model`, `get_inputs` and `get_init_inputs`."""
RECEIPT = "{}"
"""The verdict, and what it was found with, as JSON."""
FLAGS: tuple[str, ...] = ()
"""Of the compiler, as judged."""
ARCHITECTURE = ""
"""Target of the judged build: a `-march` level, or `sm_90`."""
CPU_FEATURES: frozenset[str] = frozenset()
"""CPU features of that level, as /proc/cpuinfo names them."""
