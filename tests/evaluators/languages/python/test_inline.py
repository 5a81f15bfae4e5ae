"""Modules that compile C++ inside: the builder compiles, the runner finds what was built."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.hardware.target import probe_target
from evaluators.judge.protocol import Limits
from evaluators.local import LocalEvaluator
from messages.events import Built
from messages.tasks import TaskRules
from messages.verdicts import Crashed, DidNotBuild, Measured, Outpaced, Rejected, Unstable
from tests.evaluators.languages.python.words import module
from tests.evaluators.words import SMALL_TASK, build_job, evaluate_job

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SOURCE = """
#include <torch/torch.h>

torch::Tensor scaled(torch::Tensor x, torch::Tensor weight) {
    torch::Tensor y = torch::empty_like(x);
    const float *from = x.data_ptr<float>(), *by = weight.data_ptr<float>();
    const int64_t columns = x.size(1);
    for (int64_t row = 0; row < x.size(0); ++row) {
        float sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += std::fabs(from[row * columns + c]);
        for (int64_t c = 0; c < columns; ++c)
            y.data_ptr<float>()[row * columns + c] = from[row * columns + c] * by[c] / (1 + sum / columns);
    }
    return y;
}
"""
AT_IMPORT = f"""
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''{SOURCE}'''
built = load_inline(name="scaling", cpp_sources=SOURCE, functions=["scaled"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return built.scaled(x, self.weight)
"""
HEADERS = "#include <ATen/ops/empty_like.h>\n#include <torch/csrc/Exceptions.h>\n#include <torch/csrc/utils/pybind.h>"
LEAN = (
    AT_IMPORT.replace("#include <torch/torch.h>", HEADERS)
    .replace("torch::", "at::")
    .replace('functions=["scaled"]', 'functions=["scaled"], no_implicit_headers=True')
)
"""Includes what it needs, which takes the compiler a third of the time that all of torch's headers do."""
ON_FIRST_USE = LEAN.replace("built = load_inline", "def compiled():\n    return load_inline").replace(
    "built.", "compiled()."
)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture
def builder(store: Path) -> Iterator[LocalBuilder]:
    builder = LocalBuilder(store)
    yield builder
    builder.close()


@pytest.fixture
async def evaluator(store: Path) -> AsyncIterator[LocalEvaluator]:
    evaluator = LocalEvaluator(store, slots=1, limits=Limits(memory_bytes=4 << 30))
    yield evaluator
    await evaluator.aclose()


@pytest.mark.long
async def test_extensions_are_compiled_by_the_builder_and_found_by_the_runner(
    builder: LocalBuilder, store: Path, evaluator: LocalEvaluator
) -> None:
    target = probe_target("python")
    job = build_job(module(AT_IMPORT), target)
    built = (await builder.build(job)).outcome
    assert isinstance(built, Built), built
    assert "built scaling" in built.log
    library = next(artifact_folder(store, built.artifact_id).glob("inline/*/*.so"))
    assert [path.name for path in library.parent.iterdir()] == ["scaling.so"]
    assert (await builder.build(job)).cached
    work = evaluate_job(job.candidate, built.artifact_id, target, SMALL_TASK)
    verdict = (await evaluator.evaluate(work)).verdict
    assert isinstance(verdict, Measured | Outpaced | Unstable), verdict
    # Another library in its place, of one that calls what torch has behind an operator: seen before it is loaded.
    library.write_bytes(library.read_bytes().replace(b"_ZN2at4_ops10empty_like", b"_ZN2at6native0123456789"))
    verdict = (await evaluator.evaluate(work)).verdict
    assert isinstance(verdict, Rejected), verdict
    allowed = replace(work, task=replace(SMALL_TASK, rules=TaskRules(library_calls="allow")))
    assert isinstance((await evaluator.evaluate(allowed)).verdict, DidNotBuild | Crashed)


@pytest.mark.long
async def test_an_operator_that_nobody_listed_is_denied_from_cpp_too(
    builder: LocalBuilder, evaluator: LocalEvaluator
) -> None:
    text = LEAN.replace("empty_like.h>", "softplus_backward.h>")
    begin, end = text.index("    at::Tensor y ="), text.index("    return y;")
    text = text[:begin] + "    at::Tensor y = at::softplus_backward(x, x, 1, 20);\n" + text[end:]
    target = probe_target("python")
    job = build_job(module(text), target)
    built = (await builder.build(job)).outcome
    assert isinstance(built, Built), built
    verdict = (await evaluator.evaluate(evaluate_job(job.candidate, built.artifact_id, target, SMALL_TASK))).verdict
    assert isinstance(verdict, Rejected), verdict
    assert "aten::softplus_backward" in verdict.reason


async def test_what_compiles_on_first_use_is_compiled_by_the_builder_too(builder: LocalBuilder) -> None:
    built = (await builder.build(build_job(module(ON_FIRST_USE), probe_target("python")))).outcome
    assert isinstance(built, Built), built
    assert "built scaling" in built.log


async def test_an_extension_that_does_not_compile_is_told_with_the_compilers_words(builder: LocalBuilder) -> None:
    text = LEAN.replace(HEADERS, "#error no such luck")
    outcome = (await builder.build(build_job(module(text), probe_target("python")))).outcome
    assert isinstance(outcome, DidNotBuild), outcome
    assert "no such luck" in outcome.reason
    assert "main.cpp:" in outcome.reason
    assert "inline/" not in outcome.reason
