"""What this host builds for."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.hardware.target import check_target, probe_target
from evaluators.languages.cpp.toolchain import _marches
from messages.base import ConfigError, EvaluatorError

V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
V2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}


def test_a_target_says_architecture_level_and_compiler() -> None:
    target = probe_target("cpp")
    assert target.arch
    assert target.march in {"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64", "armv8-a"}
    assert target.toolchain
    assert target == probe_target("cpp")


def test_a_level_needs_the_features_of_all_lower_levels() -> None:
    assert _marches("x86_64", frozenset(V3 | V2))[0] == "x86-64-v3"
    assert _marches("x86_64", frozenset(V3)) == ("x86-64",)
    assert _marches("riscv64", frozenset()) == ()


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EvaluatorError, match=r"install g\+\+") as raised:
        probe_target("cpp")
    assert raised.value.permanent


def test_the_users_choice_of_compiler_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSEARCH_CXX", "no-such-compiler")
    with pytest.raises(EvaluatorError, match="no-such-compiler"):
        probe_target("cpp")


def test_a_program_that_builds_nothing_is_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "cxx"
    fake.write_text("#!/bin/sh\necho it is 1.0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("KSEARCH_CXX", str(fake))
    with pytest.raises(EvaluatorError, match="builds no shared library") as raised:
        probe_target("cpp")
    assert raised.value.permanent


def test_an_artifact_for_another_host_is_the_evaluators_error() -> None:
    own = probe_target("cpp")
    check_target(own, replace(own, device="another name of the same"))
    with pytest.raises(EvaluatorError, match="evaluate it where it was built for") as raised:
        check_target(own, replace(own, march="x86-64-v9"))
    assert raised.value.permanent


def test_a_language_without_support_is_bad_input() -> None:
    with pytest.raises(ConfigError, match="use one of: cpp"):
        probe_target("cuda")
