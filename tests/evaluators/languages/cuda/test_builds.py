"""CUDA candidates are built by the real nvcc where there is one; no GPU is needed."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.languages import support_of
from evaluators.languages.cuda import toolchain
from messages.base import ConfigError, EvaluatorError
from messages.events import Built
from messages.tasks import Candidate, SourceFile, Target
from messages.verdicts import DidNotBuild
from tests.contracts.evaluators import BuilderContract
from tests.evaluators.languages.cuda.words import H200, HOPPER, RIGHT, TENSORS, TVM_FFI, cuda
from tests.evaluators.words import build_job


def why_no_nvcc() -> str:
    try:
        toolchain.probe("NVIDIA H200", "sm_90")
    except EvaluatorError as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(why_no_nvcc()), reason=why_no_nvcc())]


@pytest.fixture
def builder(tmp_path: Path) -> LocalBuilder:
    return LocalBuilder(tmp_path / "artifacts")


@pytest.fixture(scope="module")
def target() -> Target:
    return support_of("cuda", "cuda").probe_builder(H200)


@pytest.fixture
def good() -> Candidate:
    return cuda(RIGHT)


@pytest.fixture
def bad() -> Candidate:
    return cuda(RIGHT.replace("// in the kernel", "partial[0] = nothing_of_that_name;"))


class TestLocalBuilder(BuilderContract):
    pass


async def built(builder: LocalBuilder, target: Target, candidate: Candidate) -> Built:
    outcome = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(outcome, Built), outcome
    return outcome


async def refusal(builder: LocalBuilder, target: Target, text: str, **more: str) -> DidNotBuild:
    outcome = (await builder.build(build_job(cuda(text, **more), target))).outcome
    assert isinstance(outcome, DidNotBuild), outcome
    return outcome


def test_a_target_is_told_without_a_gpu(target: Target) -> None:
    assert (target.arch, target.march, target.device, target.platform) == ("sm_90", "", "NVIDIA H200", "cuda")
    assert target.toolchain.startswith("Cuda compilation tools, release ")


async def test_the_log_begins_with_what_each_kernel_needs(
    builder: LocalBuilder, target: Target, good: Candidate
) -> None:
    first = (await built(builder, target, good)).log.splitlines()[0]
    assert first.startswith("kernel scale_rows<256, true>: ")
    assert "0 bytes spilled, 1024 bytes of static shared memory" in first


async def test_the_library_exports_the_entry_point_alone_and_brings_the_runtime(
    builder: LocalBuilder, target: Target, good: Candidate, tmp_path: Path
) -> None:
    outcome = await built(builder, target, good)
    product = artifact_folder(tmp_path / "artifacts", outcome.artifact_id) / "kernel.so"
    symbols = await anyio.run_process(["nm", "-D", "--defined-only", str(product)])
    assert [line.split()[-1] for line in symbols.stdout.splitlines()] == [b"ksearch_run"]
    needs = await anyio.run_process(["readelf", "-d", str(product)])
    assert b"libcuda" not in needs.stdout


async def test_instructions_of_exactly_this_architecture_may_be_used(builder: LocalBuilder, target: Target) -> None:
    outcome = await built(builder, target, cuda(HOPPER))
    assert outcome.log.startswith("kernel donate: ")


async def test_a_tvm_ffi_entry_point_is_accepted(builder: LocalBuilder, target: Target) -> None:
    pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    await built(builder, target, cuda(TVM_FFI))


async def test_warnings_follow_the_facts(builder: LocalBuilder, target: Target) -> None:
    log = (await built(builder, target, cuda(RIGHT.replace("// in the kernel", "int unused;")))).log
    assert log.startswith("kernel scale_rows")
    assert "main.cu(17): warning" in log
    assert "ptxas info" not in log


async def test_the_first_error_names_the_candidates_line_and_shows_a_caret(
    builder: LocalBuilder, target: Target, bad: Candidate
) -> None:
    outcome = (await builder.build(build_job(bad, target))).outcome
    assert isinstance(outcome, DidNotBuild)
    assert outcome.reason == 'main.cu(17): error: identifier "nothing_of_that_name" is undefined'
    assert "^" in outcome.log
    assert "__attribute__" not in outcome.log


async def test_a_header_that_is_not_there_is_told_with_its_line(builder: LocalBuilder, target: Target) -> None:
    outcome = await refusal(builder, target, "#include <cuda_runtime.h>\n#include <torch/extension.h>\n" + RIGHT)
    assert outcome.reason.startswith("main.cu:2:10: fatal error: torch/extension.h: No such file")


async def test_an_unknown_instruction_is_told_in_the_assemblers_words(builder: LocalBuilder, target: Target) -> None:
    outcome = await refusal(builder, target, RIGHT.replace("// in the kernel", 'asm("frobnicate.sync;");'))
    assert outcome.reason.startswith("assembler: ")
    assert "frobnicate" in outcome.log
    assert "tmpxft" not in outcome.log


async def test_a_function_of_the_device_that_is_nowhere_defined_is_named(builder: LocalBuilder, target: Target) -> None:
    text = "__device__ float elsewhere();\n" + RIGHT.replace("// in the kernel", "y[0] = elsewhere();")
    outcome = await refusal(builder, target, text)
    assert "elsewhere" in outcome.reason
    assert "_Z" not in outcome.reason


@pytest.mark.parametrize("call", ["cublasCreate_v2", "cudnnGetVersion"])
async def test_a_vendors_library_is_not_linked(builder: LocalBuilder, target: Target, call: str) -> None:
    text = f'extern "C" int {call}(void*);\n' + RIGHT.replace("// before", f"{call}(nullptr);")
    assert (await refusal(builder, target, text)).reason == f"linker: undefined reference to {call}"


async def test_an_entry_point_with_a_mangled_name_is_told_as_not_exported(
    builder: LocalBuilder, target: Target
) -> None:
    outcome = await refusal(builder, target, RIGHT.replace('extern "C" int', "int"))
    assert outcome.reason.startswith("ksearch_run is not exported")


async def test_headers_of_the_candidate_are_found(builder: LocalBuilder, target: Target) -> None:
    text = '#include "mine.h"\n' + RIGHT.replace("fabsf(row[c])", "magnitude(row[c])")
    header = "static __device__ inline float magnitude(float v) { return fabsf(v); }\n"
    await built(builder, target, cuda(text, mine_h=header))


async def test_a_builder_with_another_compiler_is_an_error_not_a_verdict(
    builder: LocalBuilder, target: Target, good: Candidate
) -> None:
    other = Target(arch=target.arch, march="", toolchain="release 1.0", device=target.device)
    with pytest.raises(EvaluatorError, match="need the same compiler"):
        await builder.build(build_job(good, other))


def test_an_architecture_that_the_compiler_does_not_know_is_an_error() -> None:
    with pytest.raises(EvaluatorError, match="makes no code for sm_20"):
        toolchain.probe("GeForce GTX 480", "sm_20")


def test_a_file_without_a_unit_is_refused() -> None:
    header = Candidate(language="cuda", entry_point="ksearch_run", files=(SourceFile(path="a.h", text=""),))
    outcome = support_of("cuda", "cuda").refuse(header)
    assert outcome is not None
    assert outcome.reason == "no file to compile: at least one must end in .cu"


async def test_the_skeleton_of_the_contract_builds(builder: LocalBuilder, target: Target) -> None:
    told = support_of("cuda", "cuda").describe(TENSORS)
    await built(builder, target, cuda(told.rpartition("```cpp\n")[2].removesuffix("\n```")))


def test_cuda_is_no_language_of_the_cpu() -> None:
    with pytest.raises(
        ConfigError, match="language 'cuda' is not supported on cpu; use one of: cpp, triton, python, or a GPU"
    ):
        support_of("cuda")
