"""Run as a program: as `tests.actors.llm.offline.run_programs`, for programs of several stages.

Standard output: JSON, by name: the largest error of a program, in units of what the judge allows.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from evaluators.judge.check.compare import Allowed
from evaluators.judge.reference.problem import Problem
from messages.tasks import Tolerance
from tests.actors.llm.offline.run_programs import compiled, written


def largest_error(problem: Problem, product: Path) -> float:
    """Return the largest error of a program's outputs, divided by what the judge allows; of two calls the worse."""
    library = ctypes.CDLL(str(product))
    worst = 0.0
    for seed in (1, 2):
        inputs = problem.inputs(seed=seed)
        expected = problem.reference(inputs, problem.state, wide=True)
        native = problem.reference(inputs, problem.state, wide=False)
        outputs = [
            torch.full(spec.shape, float("nan"), dtype=getattr(torch, spec.dtype)) for spec in problem.output_specs
        ]
        given = [*inputs, *problem.state]
        pointers = (ctypes.c_void_p * len(given))(*(tensor.data_ptr() for tensor in given))
        targets = (ctypes.c_void_p * len(outputs))(*(tensor.data_ptr() for tensor in outputs))
        assert library.ksearch_run(pointers, targets, None) == 0
        for output, wanted, eager in zip(outputs, expected, native, strict=True):
            errors = Allowed(wanted, eager, Tolerance()).errors(output, wanted)
            worst = max(worst, float("inf") if bool(errors.wrong.any()) else errors.ratio)
    return worst


def main() -> None:
    """Do all cases; the compilers run two at a time."""
    cases = json.load(sys.stdin)["cases"]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        programs = {name: written(reference, plan) for name, reference, plan in cases}
        products = {name: pool.submit(compiled, source, Path(scratch) / name) for name, (_, source) in programs.items()}
        errors = {name: largest_error(problem, products[name].result()) for name, (problem, _) in programs.items()}
    sys.stdout.write(json.dumps(errors))


if __name__ == "__main__":
    main()
