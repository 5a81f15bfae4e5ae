"""A judge as naive as many in use, to show that what this collection holds are cheats and not mere mistakes.

It loads the candidate into its own process, keeps the expected values beside it, calls it on the same data again and
again with its own clock, allows an absolute and relative error of 0.01 in all but one of a hundred elements, believes
benchmark lines on standard output, and takes exit code 0 for a pass. A script, stdlib only: `PRODUCT TASK FLAVOUR`.

Flavours: `same data`; `fresh data`: a second call on other data counts; `reference last`: computed after the call, from
the same memory. The process that says how it went is the parent of the one that loads the candidate.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterable, Iterator

ROWS, COLUMNS = 64, 256
SEED = 42
CALLS = 20
_kept: list[object] = []
"""What a candidate's threads may still look at when the judge is done."""


def numbers(count: int, seed: int) -> Iterator[float]:
    """Yield from a small linear congruential generator: like every fixed seed, one that a candidate can replay."""
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        yield seed / 0x7FFFFFFF


def reference(inputs: Iterable[float], parameters: Iterable[float], factor: float) -> list[float]:
    x, weight, found = list(inputs), list(parameters), list[float]()
    for start in range(0, ROWS * COLUMNS, COLUMNS):
        row = x[start : start + COLUMNS]
        scale = factor / (1 + sum(map(abs, row)) / COLUMNS)
        found.extend(value * by * scale for value, by in zip(row, weight, strict=True))
    return found


def close(found: Iterable[float], expected: Iterable[float]) -> bool:
    wrong = sum(abs(a - b) > 0.01 + 0.01 * abs(b) for a, b in zip(found, expected, strict=True))
    return wrong <= ROWS * COLUMNS // 100


def judge(product: str, task: str, flavour: str) -> int:
    kind, factor = (ctypes.c_double, 0.001) if task == "tiny" else (ctypes.c_float, 1.0)
    count = ROWS * COLUMNS
    library = ctypes.CDLL(product)
    x = (kind * count)(*numbers(count, SEED))
    weight = (kind * COLUMNS)(*(1 + 0.1 * value for value in numbers(COLUMNS, SEED + 1)))
    roomy = (kind * (count + 32))()
    out = (kind * count).from_buffer(roomy, 16 * ctypes.sizeof(kind))
    expected = (kind * count)(*reference(x, weight, factor))
    inputs = (ctypes.c_void_p * 2)(ctypes.addressof(x), ctypes.addressof(weight))
    outputs = (ctypes.c_void_p * 1)(ctypes.addressof(out))
    pointer = ctypes.POINTER(ctypes.c_int64)
    _kept.extend((x, weight, roomy))
    sizes = [(ctypes.c_int64 * 3)(ROWS, COLUMNS, 0), (ctypes.c_int64 * 2)(COLUMNS, 0)]
    shapes = (pointer * 3)(*(ctypes.cast(sizes[index], pointer) for index in (0, 1, 0)))

    def call() -> int:
        return int(library.ksearch_run(inputs, outputs, shapes))

    status = call()
    if flavour == "fresh data":
        x[:] = list(numbers(count, SEED + 2))
        expected[:] = reference(x, weight, factor)
        status = call()
    time.sleep(0.03)  # as a device would be waited for
    if flavour == "reference last":
        expected[:] = reference(x, weight, factor)
    correct = status == 0 and close(out, expected)
    begun = time.perf_counter()
    for _ in range(CALLS):
        status |= call()
    mean_us = (time.perf_counter() - begun) / CALLS * 1e6
    sys.stdout.write(f"mean_us: {mean_us:.3f}\n")
    return 0 if correct and status == 0 else 1


def main() -> int:
    child = os.fork()
    if child == 0:
        status = judge(*sys.argv[1:4])
        sys.stdout.flush()
        os._exit(status)
    _, how = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(how) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
