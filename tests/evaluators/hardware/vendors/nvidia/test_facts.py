"""What a GPU is, as the driver says; most hosts that run these tests have none."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from evaluators.hardware.vendors.nvidia.facts import GpuFacts, gpu_facts, gpu_index
from evaluators.languages.cpp.toolchain import find_compiler
from messages.base import ConfigError, EvaluatorError

STAND_IN = """
#include <cstddef>
#include <cstring>
extern "C" {
int cuInit(unsigned) { return INIT; }
int cuDeviceGet(int* device, int index) { *device = index; return index < 1 ? 0 : 101; }
int cuDeviceGetName(char* name, int size, int) { std::strncpy(name, "NVIDIA H200", size); return 0; }
int cuDeviceGetUuid_v2(unsigned char* uuid, int) { std::memset(uuid, 0xab, 16); return 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int) { *bytes = 150754820096; return 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuGetErrorString(int, const char** text) { *text = "in the stand-in's words"; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 13: *value = 1980000; return 0;
        case 16: *value = 132; return 0;
        case 36: *value = 3201000; return 0;
        case 37: *value = 6144; return 0;
        case 38: *value = 62914560; return 0;
        case 75: *value = 9; return 0;
        case 76: *value = 0; return 0;
        case 97: *value = 232448; return 0;
    }
    return 1;
}
}
"""


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> None:
    gpu_facts.cache_clear()


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *, init: int = 0) -> None:
    """Put a driver where the dynamic linker looks first."""
    source = folder / "driver.cpp"
    source.write_text(STAND_IN, encoding="utf-8")
    product = str(folder / "libcuda.so.1")
    command = [find_compiler(), "-shared", "-fPIC", f"-DINIT={init}", "-o", product, str(source)]
    subprocess.run(command, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def test_the_drivers_answers_become_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)
    facts = gpu_facts("cuda:0")
    assert (facts.name, facts.capability, facts.arch) == ("NVIDIA H200", (9, 0), "sm_90")
    assert (facts.multiprocessors, facts.l2_bytes, facts.memory_bytes) == (132, 62914560, 150754820096)
    assert facts.uuid == "ab" * 16
    assert facts.memory_bytes_per_s == pytest.approx(4.917e12, rel=1e-3)


def test_a_gpu_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)
    first = gpu_facts("cuda:0")
    (tmp_path / "libcuda.so.1").unlink()
    assert gpu_facts("cuda:0") is first


def test_a_number_that_no_gpu_has_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)
    with pytest.raises(EvaluatorError, match="there is no cuda:7 on this host") as caught:
        gpu_facts("cuda:7")
    assert caught.value.permanent


def test_a_driver_that_does_not_work_is_told_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, init=999)
    with pytest.raises(EvaluatorError, match="cuInit failed with 999: in the stand-in's words"):
        gpu_facts("cuda:0")


@pytest.mark.skipif(has_driver(), reason="this host has NVIDIA's driver")
def test_a_host_without_a_driver_says_so() -> None:
    with pytest.raises(EvaluatorError, match="no NVIDIA driver on this host") as caught:
        gpu_facts("cuda:0")
    assert caught.value.permanent


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:", "cuda:x", "gpu:0"])
def test_what_is_no_gpus_name_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="is no GPU"):
        gpu_index(device)


@pytest.mark.gpu
@pytest.mark.skipif(not has_driver(), reason="this host has no NVIDIA driver")
def test_a_real_gpu_tells_plausible_facts() -> None:
    facts: GpuFacts = gpu_facts("cuda:0")
    assert facts.name
    assert facts.capability >= (7, 0)
    assert facts.memory_bytes_per_s > 1e11
