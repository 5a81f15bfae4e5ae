"""Run as a program: writes, compiles and runs programs for references, and prints how far they are from torch.

A process of its own, since nothing that plans or writes may import torch. Standard input: JSON with `cases`, a list of
(name, reference, plan). Standard output: JSON, by name: the largest error in units of what float32 arithmetic allows;
with the argument `write` the programs themselves, which are not compiled then.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from actors.llm.offline.cpp.codegen import Contract, write_source
from actors.llm.offline.plan import read_plan
from actors.llm.offline.reading import read_contract, read_task
from actors.llm.offline.reference import read_program
from evaluators.judge.description import describe_problem
from evaluators.judge.reference.problem import Problem
from messages.tasks import TaskSpec

_ALLOWED = {"bfloat16": 2e-3, "float32": 1.5e-6, "float64": 1e-14}
_COMPILER = ("g++", "-std=c++17", "-O3", "-fopenmp", "-fPIC", "-shared", "-march=native", "-Wall", "-Wextra", "-Werror",
             "-Wno-unused-parameter")  # fmt: skip


def written(reference: str, plan_words: str) -> tuple[Problem, str]:
    """Return the problem and a program for it."""
    task = TaskSpec(name="reference", source="kernelbench", text=reference)
    problem = Problem(task)
    prompt = describe_problem(task, problem, "cpp").prompt
    read = read_task(prompt)
    plan = read_plan(f"// plan: {plan_words}")
    contract = read_contract(prompt)
    assert plan is not None
    assert isinstance(contract, Contract)
    return problem, write_source([read_program(read.source, read.tensors)], plan, contract)


def compiled(source: str, folder: Path) -> Path:
    """Compile a program."""
    folder.mkdir()
    (folder / "kernel.cpp").write_text(source)
    subprocess.run([*_COMPILER, "-o", "kernel.so", "kernel.cpp"], cwd=folder, check=True, timeout=100)
    return folder / "kernel.so"


def largest_error(problem: Problem, product: Path) -> float:
    """Return the largest error of a program's outputs, divided by what is allowed."""
    inputs = problem.inputs(seed=1)
    expected = problem.reference(inputs, problem.state, wide=True)
    outputs = [torch.full(spec.shape, float("nan"), dtype=getattr(torch, spec.dtype)) for spec in problem.output_specs]
    given = [*inputs, *problem.state]
    pointers = (ctypes.c_void_p * len(given))(*(tensor.data_ptr() for tensor in given))
    targets = (ctypes.c_void_p * len(outputs))(*(tensor.data_ptr() for tensor in outputs))
    assert ctypes.CDLL(str(product)).ksearch_run(pointers, targets, None) == 0
    worst = 0.0
    for output, wanted, spec in zip(outputs, expected, problem.output_specs, strict=True):
        error = (output.double() - wanted.double()).abs() / (1.0 + wanted.double().abs())
        worst = max(worst, float(torch.nan_to_num(error, nan=float("inf")).max()) / _ALLOWED[spec.dtype])
    return worst


def main() -> None:
    """Do all cases; the compilers run two at a time."""
    cases = json.load(sys.stdin)["cases"]
    programs = {name: written(reference, plan) for name, reference, plan in cases}
    if sys.argv[1:] == ["write"]:
        sys.stdout.write(json.dumps({name: source for name, (_, source) in programs.items()}))
        return
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        products = {name: pool.submit(compiled, source, Path(scratch) / name) for name, (_, source) in programs.items()}
        errors = {name: largest_error(problem, products[name].result()) for name, (problem, _) in programs.items()}
    sys.stdout.write(json.dumps(errors))


if __name__ == "__main__":
    main()
