"""The examples that coders are shown are what the contracts ask for: real compilers take them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from actors.coder.parse import parse_answer
from actors.coder.prompts import system_rules
from evaluators.hardware.roofline import hardware_of
from evaluators.languages import SPECS, support_of
from evaluators.languages.base import CalledWith
from evaluators.languages.cuda.toolchain import find_nvcc
from messages.base import EvaluatorError, Language
from messages.tasks import Candidate, CpuFacts, Target, TensorSpec

GPUS = {
    "sm_70": "Tesla V100-SXM2-16GB",
    "sm_75": "Tesla T4",
    "sm_80": "NVIDIA A100-SXM4-80GB",
    "sm_86": "NVIDIA GeForce RTX 3090",
    "sm_89": "NVIDIA L4",
    "sm_90": "NVIDIA H200",
    "sm_100": "NVIDIA B200",
    "sm_103": "NVIDIA B300",
    "sm_120": "NVIDIA GeForce RTX 5090",
}
ROWS = (
    TensorSpec(name="x", role="input", shape=(64, 4096), dtype="float32"),
    TensorSpec(name="sums", role="output", shape=(64,), dtype="float32"),
)


def gpu(arch: str) -> Target:
    return Target(arch=arch, march="", toolchain="t", device=GPUS[arch])


def example(language: Language) -> Candidate:
    entry_point = "ModelNew" if language == "python" else "ksearch_run"
    candidate, complaint = parse_answer(SPECS[language].craft.EXAMPLE, language=language, entry_point=entry_point)
    assert candidate is not None, complaint
    return candidate


def built(folder: Path, language: Language, target: Target) -> str:
    """Build the example as a builder would, without a sandbox; return what went wrong."""
    candidate, support = example(language), support_of(language, target.platform)
    for file in candidate.files:
        (folder / file.path).write_text(file.text, encoding="utf-8")
    refusal = support.refuse(candidate)
    plan = support.plan_build(candidate, target, (CalledWith(tensors=ROWS),))
    ran = subprocess.run(plan.command, cwd=folder, capture_output=True, text=True, check=False)
    lost = None if ran.returncode else support.check_product(folder / plan.product, candidate)
    return f"{refusal or ''}{ran.stdout + ran.stderr if ran.returncode else ''}{lost or ''}"


@pytest.mark.parametrize("language", ["cpp", "python"])
def test_the_example_of_a_language_builds_on_this_host(tmp_path: Path, language: Language) -> None:
    assert built(tmp_path, language, support_of(language).probe_target("cpu")) == ""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_triton_example_compiles_for_gpus(tmp_path: Path, arch: str) -> None:
    assert built(tmp_path, "triton", gpu(arch)) == ""


def test_the_cuda_example_compiles_for_a_gpu(tmp_path: Path) -> None:
    try:
        find_nvcc()
    except EvaluatorError:
        pytest.skip("no nvcc here")
    assert built(tmp_path, "cuda", gpu("sm_90")) == ""


@pytest.mark.parametrize("language", ["cpp", "cuda", "triton", "python"])
def test_a_language_is_shown_its_example_and_no_other(language: Language) -> None:
    rules = system_rules(language)
    assert SPECS[language].craft.EXAMPLE in rules
    assert not any(spec.craft.EXAMPLE in rules for name, spec in SPECS.items() if name != language)


@pytest.mark.parametrize("arch", GPUS)
def test_advice_for_a_generation_names_no_instruction_that_it_lacks(arch: str) -> None:
    hardware = hardware_of(gpu(arch))
    assert hardware.architecture is not None
    lacks = " ".join(hardware.architecture.lacks).split(":")[0]
    for language in ("cuda", "triton"):
        told = " ".join(SPECS[language].craft.advice(hardware))
        for instruction in ("cp.async", "wgmma", "TMA", "tcgen05", "clusters"):
            if instruction in lacks:
                assert instruction not in told, (language, instruction)
        assert told


def test_a_cpu_is_advised_by_its_lanes_and_its_cache() -> None:
    target = Target(
        arch="x86_64",
        march="x86-64-v4",
        toolchain="g++",
        device="AMD EPYC",
        cpu=CpuFacts(cores=2, l2_bytes=1 << 20),
    )
    told = " ".join(SPECS["cpp"].craft.advice(hardware_of(target)))
    assert "16 fp32 at once" in told
    assert "512 KiB" in told
    assert (
        SPECS["cpp"].craft.advice(hardware_of(Target(arch="riscv64", march="rv64gc", toolchain="g++", device="x")))
        == ()
    )
