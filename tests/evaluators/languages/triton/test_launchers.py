"""What launches kernels is compiled beside them, by versions of Triton that do that: here a stand-in for one."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from triton.backends.nvidia import driver
from triton.runtime import build

from evaluators.build.policy.symbols import read_imports
from evaluators.languages.triton.launchers import Launchers
from evaluators.runners.kernels import LAUNCHER

TEXT = "int cuInit(unsigned); int cuCtxSynchronize(void); int launch(void) { return cuInit(0) + cuCtxSynchronize(); }"


def source(**signature: str) -> Any:
    return SimpleNamespace(signature=signature, constants={})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have Triton compile a module per signature, into this cache, and refuse to load one here."""

    class Launcher:
        def __init__(self, source: Any, _metadata: object) -> None:
            values = [*source.signature.values()]
            build.compile_module_from_src(
                f"{TEXT} // {values}", "__triton_launcher", driver.library_dirs(), [], driver.libraries
            )

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "make_launcher", None, raising=False)
    monkeypatch.setattr(driver, "CudaLauncher", Launcher)
    return tmp_path


def test_each_signature_has_one_that_needs_the_drivers_library_which_need_not_be_here(cache: Path) -> None:
    launchers = Launchers()
    for told in (source(x="*fp32", n="i32"), source(y="*fp32", m="i32"), source(x="*fp16", n="i32")):
        launchers.begin(told)
    launchers.wait()
    found = sorted(cache.rglob("*.so"))
    assert len(found) == 2
    for path in found:
        assert re.fullmatch(LAUNCHER, path.name)
        assert "libcuda.so.1" in read_imports(path.read_bytes()).needed
    assert not [*cache.rglob("libcuda*")]


def test_one_for_tensor_descriptors_is_left_to_the_first_call(cache: Path) -> None:
    launchers = Launchers()
    launchers.begin(source(x="tensordesc<fp32[64, 64]>", n="i32"))
    launchers.wait()
    assert not [*cache.rglob("*.so")]


def test_nothing_is_left_where_there_is_no_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    launchers = Launchers()
    launchers.begin(source(x="*fp32"))
    launchers.wait()
    assert not [*cache.rglob("*.so")]


def test_a_version_that_has_one_for_all_compiles_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(driver, "make_launcher")
    launchers = Launchers()
    launchers.begin(source(x="*fp32"))
    launchers.wait()
    assert not [*cache.rglob("*.so")]
