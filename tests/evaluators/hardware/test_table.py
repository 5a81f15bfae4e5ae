"""What is known of devices, and what is not: a row is only given to the device that it is of."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evaluators.hardware.roofline import _TABLE, cpu_facts, describe_hardware, hardware_of
from messages.tasks import CpuFacts, Target


def target(device: str, arch: str, **changes: object) -> Target:
    return Target(**{"arch": arch, "march": "", "toolchain": "t", "device": device, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "arch", "row"),
    [
        ("Tesla V100-SXM2-16GB", "sm_70", "V100 SXM2"),
        ("Tesla V100-PCIE-16GB", "sm_70", "V100 PCIe"),
        ("Tesla T4", "sm_75", "T4"),
        ("NVIDIA A100-SXM4-40GB", "sm_80", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "sm_80", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "sm_80", "A100 PCIe 80GB"),
        ("NVIDIA A10", "sm_86", "A10"),
        ("NVIDIA GeForce RTX 3090", "sm_86", "RTX 3090"),
        ("NVIDIA L4", "sm_89", "L4"),
        ("NVIDIA L40S", "sm_89", "L40S"),
        ("NVIDIA GeForce RTX 4090", "sm_89", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "sm_120", "RTX 5090"),
        ("NVIDIA H100 80GB HBM3", "sm_90", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "sm_90", "H100 PCIe"),
        ("NVIDIA H200", "sm_90", "H200"),
        ("NVIDIA GH200 480GB", "sm_90", "GH200 96GB HBM3"),
        ("NVIDIA B200", "sm_100", "B200"),
    ],
)
def test_a_device_is_found_by_the_name_that_its_driver_gives_it(device: str, arch: str, row: str) -> None:
    gpu = hardware_of(target(device, arch)).gpu
    assert gpu is not None
    assert gpu.name == row


@pytest.mark.parametrize(
    ("device", "arch"),
    [
        ("NVIDIA GeForce RTX 3090 Ti", "sm_86"),
        ("NVIDIA GeForce RTX 4090 D", "sm_89"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "sm_89"),
        ("NVIDIA RTX 6000 Ada Generation", "sm_89"),
        ("NVIDIA H20", "sm_90"),
        ("NVIDIA H200", "sm_80"),
    ],
)
def test_another_device_gets_no_row_that_is_not_its_own_but_its_architectures_and_says_so(
    device: str, arch: str
) -> None:
    found = hardware_of(target(device, arch))
    assert found.gpu is None
    assert found.architecture is not None
    told = describe_hardware(target(device, arch))
    assert "this very device is not in the table: what follows holds for its architecture" in told
    assert "TFLOP/s" not in told
    assert "KiB of shared memory" in told


def test_an_architecture_that_nobody_knows_is_said_to_be_unknown() -> None:
    told = describe_hardware(target("NVIDIA X1", "sm_250"))
    assert told == "NVIDIA X1 (sm_250).\n- nothing more is known of this architecture"


def test_a_generation_is_told_what_it_has_and_what_it_lacks() -> None:
    ampere, hopper, blackwell = (
        describe_hardware(target(device, arch))
        for device, arch in (
            ("NVIDIA A100-SXM4-80GB", "sm_80"),
            ("NVIDIA H100 PCIe", "sm_90"),
            ("NVIDIA B200", "sm_100"),
        )
    )
    has, _, lacks = ampere.partition("- lacks:")
    assert "cp.async" in has
    assert "wgmma" not in has
    assert "wgmma" in lacks
    assert "wgmma" in hopper.partition("- lacks:")[0]
    assert "tcgen05" in hopper.partition("- lacks:")[2]
    assert "tcgen05" in blackwell.partition("- lacks:")[0]
    assert "wgmma" in blackwell.partition("- lacks:")[2]


def test_each_row_belongs_to_an_architecture_of_the_table_and_its_rates_are_in_order() -> None:
    for gpu in _TABLE.gpu:
        assert gpu.arch in _TABLE.arch, gpu.name
        assert gpu.peak["fp32"] <= gpu.peak.get("tf32", gpu.peak["fp32"]) <= gpu.peak.get("bf16", float("inf")), (
            gpu.name
        )
        assert gpu.peak.get("bf16", gpu.peak.get("fp16")) == gpu.peak.get("fp16"), gpu.name
        assert 1e11 < gpu.memory_bytes_per_s < 1e13, gpu.name
        shared = _TABLE.arch[gpu.arch]
        assert shared.shared_per_block <= shared.shared_per_sm, gpu.name


def test_a_cpu_is_told_by_its_level_and_by_what_its_host_says() -> None:
    facts = CpuFacts(cores=2, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
    told = describe_hardware(target("AMD EPYC", "x86_64", march="x86-64-v3", toolchain="g++ 12", cpu=facts))
    assert told == (
        "AMD EPYC; x86_64, built with -march=x86-64-v3 by g++ 12.\n"
        "- vector units: AVX2 with FMA and F16C: 256 bits, 8 fp32 lanes, 16 registers\n"
        "- 2 cores, hardware threads included; caches: L1 data 32 KiB, L2 1 MiB, L3 32 MiB"
    )
    assert describe_hardware(target("AMD EPYC", "x86_64")) == "AMD EPYC; x86_64, run by t."


def test_this_host_says_how_many_cores_it_gives() -> None:
    assert cpu_facts().cores >= 1


def test_the_table_is_read_without_torch() -> None:
    code = "import sys, evaluators.hardware.roofline; sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    assert subprocess.run((sys.executable, "-c", code), check=False).returncode == 0
