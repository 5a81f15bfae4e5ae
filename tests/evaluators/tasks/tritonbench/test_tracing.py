"""What a test calls the gold with becomes the inputs, in a process of its own: as the judge's, it interprets Triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluators.tasks.tritonbench.problems import checkout

_BEGIN = """
import json, sys
import torch
from evaluators.judge.reference.problem import Problem
from evaluators.tasks import load_task
from evaluators.tasks.tritonbench.packing import candidate_of
task = load_task(sys.argv[1])
problem = Problem(task)
"""


def run(selector: str, code: str) -> object:
    """Run code that prints JSON, behind the lines above."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + code, selector],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_call_of_the_test_is_recorded_and_what_it_writes_to(tmp_path: Path) -> None:
    code = """
first, second = problem.inputs(1), problem.inputs(2)
calls = problem.call.arguments.items[0].items
out = problem.reference(first, ())
print(json.dumps({
    "shapes": [list(one.shape) for one in first], "differ": not any(map(torch.equal, first, second)),
    "again": all(map(torch.equal, first, problem.inputs(1))), "calls": len(calls),
    "outputs": [list(one.shape) for one in out],
    "right": [torch.equal(out[0], first[0] + 1.0), torch.equal(out[1], first[1] + 0.5), bool(out[2].isinf().all())],
    "device": str(first[0].device),
}))
"""
    assert run(f"tritonbench:{checkout(tmp_path)}#G/shift", code) == {
        "shapes": [[3, 1000], [70], [5]],
        "differ": True,
        "again": True,
        "calls": 3,
        "outputs": [[3, 1000], [70], [5]],
        "right": [True, True, True],
        "device": "cpu",
    }


@pytest.mark.long
def test_smaller_sizes_and_timed_ones_are_other_workloads(tmp_path: Path) -> None:
    code = "print(json.dumps([list(one.shape) for one in problem.inputs(1)]))"
    root = checkout(tmp_path)
    assert run(f"tritonbench:{root}#G/shift:cpu", code) == [[3, 128], [70], [5]]
    assert run(f"tritonbench:{root}#G/shift:perf/2", code) == [[64]]


def test_functions_that_draw_are_seeded_before_each_call_and_odd_calls_are_left_out(tmp_path: Path) -> None:
    code = """
inputs = problem.inputs(1)
one, other = problem.reference(inputs, ()), problem.reference(inputs, ())
print(json.dumps([len(one), all(map(torch.equal, one, other)), torch.equal(one[1], one[2])]))
"""
    # The second call returns what it wrote to as well.
    assert run(f"tritonbench:{checkout(tmp_path)}#T/noisy", code) == [3, True, True]


@pytest.mark.parametrize(("call", "complaint"), [("print(shift)", "no call"), ("shift(object())", "no call")])
def test_a_test_without_calls_by_tensors_is_said_to_be_so(tmp_path: Path, call: str, complaint: str) -> None:
    root = checkout(tmp_path)
    problem = root / "data" / "TritonBench_G_v1" / "shift.py"
    text = problem.read_text()
    before = text.index("def test_shift")
    problem.write_text(
        f"{text[:before]}def shift_of(x):\n    return 1\n\n\n{call.replace('shift(', 'shift_of(')}\nshift\n"
    )
    code = _BEGIN.replace("problem = Problem(task)", "")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nProblem(task)", f"tritonbench:{root}#G/shift"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        timeout=120,
    )
    assert complaint in done.stderr


def test_values_that_a_test_writes_out_differ_from_draw_to_draw(tmp_path: Path) -> None:
    code = """
one, other = problem.inputs(1)[0], problem.inputs(2)[0]
written = torch.tensor([1.5, 2.5, 3.5])
print(json.dumps([bool((one <= written).all() and (one >= 0.9 * written).all()), torch.equal(one, other)]))
"""
    assert run(f"tritonbench:{checkout(tmp_path)}#T/noisy", code) == [True, False]
