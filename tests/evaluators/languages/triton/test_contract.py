"""What a coder is told of Triton's calling contract, and what is refused before anything runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.languages.triton.contract import argument_names, describe
from messages.base import ConfigError
from messages.events import Built
from messages.tasks import Candidate, Target, TensorSpec
from messages.verdicts import DidNotBuild
from tests.contracts.evaluators import BuilderContract
from tests.evaluators.languages.triton.words import RIGHT, triton
from tests.evaluators.words import build_job

pytestmark = pytest.mark.anyio

TENSORS = (
    TensorSpec(name="x", role="input", shape=(4, 8), dtype="bfloat16"),
    TensorSpec(name="norm.weight", role="parameter", shape=(8,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(4, 8), dtype="bfloat16"),
)


@pytest.fixture(scope="module")
def target() -> Target:
    return probe_target("triton")


@pytest.fixture
def builder(tmp_path: Path) -> LocalBuilder:
    return LocalBuilder(tmp_path)


@pytest.fixture
def good() -> Candidate:
    return triton()


@pytest.fixture
def bad() -> Candidate:
    return triton("def ksearch_run(:\n")


class TestTritonBuilder(BuilderContract):
    pass


def named(*names: str) -> tuple[str, ...]:
    return argument_names(tuple(TensorSpec(name=name, role="input", shape=(1,), dtype="float32") for name in names))


def test_the_first_block_of_the_contract_is_the_signature_with_the_tasks_names() -> None:
    first = re.findall(r"```python\n(.*?)```", describe(TENSORS), re.DOTALL)[0]
    assert first.startswith("def ksearch_run(x, norm_weight, output) -> None:\n")
    assert "# norm_weight: (8,) float32, parameter" in first


def test_every_block_of_the_contract_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", describe(TENSORS), re.DOTALL)
    assert len(blocks) == 2
    ast.parse(blocks[1])


async def test_the_contracts_skeleton_builds(builder: LocalBuilder, target: Target) -> None:
    skeleton = re.findall(r"```python\n(.*?)```", describe(TENSORS), re.DOTALL)[1]
    assert isinstance((await builder.build(build_job(triton(skeleton), target))).outcome, Built)


def test_arguments_are_identifiers_and_differ() -> None:
    assert named("a.b", "a_b", "lambda", "0.weight") == ("a_b", "a_b_", "lambda_", "t_0_weight")


def test_a_dtype_that_triton_has_not_is_bad_input() -> None:
    strange = TensorSpec(name="x", role="input", shape=(1,), dtype="complex64")
    with pytest.raises(ConfigError, match="'x' is complex64"):
        describe((strange,))


def test_a_target_says_which_versions_interpret() -> None:
    target = probe_target("triton")
    assert (target.arch, target.march) == ("interpreter", "")
    assert all(name in target.toolchain for name in ("triton ", "torch ", "numpy ", "Python "))
    assert "interpreter" in target.device


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1\ndef f(:\n", "SyntaxError: invalid syntax (kernel.py:2)"),
        (RIGHT.replace("ksearch_run", "run"), "ksearch_run is not defined in kernel.py"),
        (RIGHT.replace("@triton.jit", ""), "no kernel: no function is decorated with @triton.jit"),
        (RIGHT.replace("def ksearch_run", "@triton.jit\ndef ksearch_run"), "ksearch_run is a kernel"),
        ("x = '\0'", "kernel.py"),
        ("(" * 3000, "kernel.py"),
    ],
)
async def test_what_is_no_program_does_not_build(builder: LocalBuilder, target: Target, text: str, reason: str) -> None:
    outcome = (await builder.build(build_job(triton(text), target))).outcome
    assert isinstance(outcome, DidNotBuild), outcome
    assert reason in outcome.reason


async def test_an_entry_point_may_be_imported_or_assigned(builder: LocalBuilder, target: Target) -> None:
    text = RIGHT.replace("def ksearch_run", "def run") + "\nif True:\n    ksearch_run = run\n"
    assert isinstance((await builder.build(build_job(triton(text), target))).outcome, Built)


async def test_a_file_of_another_language_is_refused(builder: LocalBuilder, target: Target) -> None:
    outcome = (await builder.build(build_job(triton(path="kernel.cu"), target))).outcome
    assert isinstance(outcome, DidNotBuild)
    assert ".py" in outcome.reason


async def test_building_executes_nothing(builder: LocalBuilder, target: Target, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    text = f"open({str(trace)!r}, 'w')\n{RIGHT}"
    assert isinstance((await builder.build(build_job(triton(text), target))).outcome, Built)
    assert not trace.exists()
