"""Run as a program under `TRITON_INTERPRET=1`: writes and runs programs, and prints how far they are from torch.

A process of its own, since nothing that plans or writes may import torch. Standard input: JSON with `cases`, a list of
(name, reference, plan). Standard output: JSON, by name: the largest error in units of what is allowed.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from actors.llm.offline.plan import read_plan
from actors.llm.offline.reference import read_program
from actors.llm.offline.stages import TensorInfo
from actors.llm.offline.triton.codegen import Contract, write_source
from evaluators.judge.reference.problem import Problem
from messages.tasks import TaskSpec

_ALLOWED = {"bfloat16": 8e-3, "float16": 5e-4, "float32": 3e-6, "float64": 1e-14}
"""A unit in the last place of a bfloat16: Triton's interpreter cuts where a GPU rounds to nearest. Of float32, what
sums of 130 products differ by in the order of one processor's BLAS or another's: 1.8e-6 was seen."""


def written(reference: str, plan_words: str) -> tuple[Problem, str]:
    """Return the problem and a program for it."""
    problem = Problem(TaskSpec(name="reference", source="kernelbench", text=reference))
    tensors = tuple(
        TensorInfo(name=spec.name, role=spec.role, shape=spec.shape, dtype=spec.dtype) for spec in problem.tensors
    )
    plan = read_plan(f"# plan: {plan_words}")
    assert plan is not None
    arguments = tuple(tensor.name.replace(".", "_") for tensor in tensors)
    contract = Contract(function="ksearch_run", arguments=arguments)
    return problem, write_source([read_program(reference, tensors)], plan, contract)


def largest_error(problem: Problem, path: Path) -> float:
    """Return the largest error of a program's outputs, divided by what is allowed."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inputs = problem.inputs(seed=1)
    expected = problem.reference(inputs, problem.state, wide=True)
    outputs = [torch.full(spec.shape, float("nan"), dtype=getattr(torch, spec.dtype)) for spec in problem.output_specs]
    module.ksearch_run(*inputs, *problem.state, *outputs)
    worst = 0.0
    for output, wanted, tensor in zip(outputs, expected, problem.output_specs, strict=True):
        error = (output.double() - wanted.double()).abs() / (1.0 + wanted.double().abs())
        worst = max(worst, float(torch.nan_to_num(error, nan=float("inf")).max()) / _ALLOWED[tensor.dtype])
    return worst


def main() -> None:
    """Do all cases."""
    warnings.simplefilter("ignore", RuntimeWarning)  # NumPy speaks up where an exponential overflows
    cases = json.load(sys.stdin)["cases"]
    errors = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, reference, plan) in enumerate(cases):
            problem, source = written(reference, plan)
            path = Path(scratch) / f"kernel_{number}.py"
            path.write_text(source)
            errors[name] = largest_error(problem, path)
    sys.stdout.write(json.dumps(errors))


if __name__ == "__main__":
    main()
