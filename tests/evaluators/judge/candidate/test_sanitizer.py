"""What compute-sanitizer writes, and how a crashed candidate is called below it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from evaluators.judge.candidate import sanitizer
from evaluators.judge.candidate.runner import RunnerSpec
from evaluators.judge.candidate.sanitizer import Second, find_sanitizer, findings_in, is_gpu_crash, sanitize
from evaluators.judge.check.terms import Terms
from evaluators.judge.data.arena import Placed
from evaluators.judge.data.memory import Buffers
from messages.verdicts import Crashed

TRITON = """\
========= COMPUTE-SANITIZER
========= Invalid __shared__ read of size 512 bytes
=========     at mla_split+0x2a10 in kernel.py:74
=========     by thread (32,0,0) in block (3,0,0)
=========     Access to 0x1c000 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernelEx [0x2e8f00] in libcuda.so.1
=========             Host Frame: _launch in driver.py:712
=========
========= Invalid __shared__ read of size 512 bytes
=========     at mla_split+0x2a10 in kernel.py:74
=========     by thread (33,0,0) in block (3,0,0)
=========     Access to 0x1c200 is out of bounds
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure".
=========     Saved host backtrace up to driver entry point at error
========= ERROR SUMMARY: 3 errors
"""
CUDA = """\
========= Invalid __global__ read of size 4 bytes
=========     at void ns::scale<float>(const float *, float *)+0x1a0 in /tmp/build-x/scale.cu:12
=========     by thread (0,0,0) in block (3,0,0)
=========     Address 0x7f2a00200400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a00200000 of size 1,024 bytes
========= Misaligned __global__ write of size 16 bytes
=========     at 0x00000090 in /src/other.cu:7:store(float4*)
=========     by thread (1,0,0) in block (0,2,0)
=========     Address 0x7f2a00200404 is misaligned
========= Warp Illegal Address
=========     at bare+0x40
"""
LOG = "log of the stand-in"


def test_the_kernel_line_access_and_size_are_read_from_what_memcheck_writes() -> None:
    assert findings_in(TRITON) == (
        "Invalid __shared__ read of size 512 bytes at mla_split, kernel.py:74, thread (32,0,0) of block (3,0,0): "
        "the address is out of bounds",
    )


def test_kernels_of_cuda_and_forms_of_older_releases_are_read_too() -> None:
    assert findings_in(CUDA) == (
        "Invalid __global__ read of size 4 bytes at void ns::scale<float>(const float *, float *), scale.cu:12, "
        "thread (0,0,0) of block (3,0,0): the address is out of bounds",
        "Misaligned __global__ write of size 16 bytes at store(float4*), other.cu:7, "
        "thread (1,0,0) of block (0,2,0): the address is misaligned",
        "Warp Illegal Address at bare",
    )


@pytest.mark.parametrize("log", ["", "========= ERROR SUMMARY: 0 errors\n", "no header\n at x+0x1 in y.py:3"])
def test_nothing_is_found_where_nothing_is_reported(log: str) -> None:
    assert findings_in(log) == ()


def test_findings_are_few_short_and_harmless() -> None:
    many = "".join(
        f"========= Invalid __global__ read of size 4\n=========     at k{n}\x1b[2J{'x' * 999}+0x1 in f.py:{n}\n"
        for n in range(99)
    )
    assert len(findings_in(many)) == 3
    assert all(len(one) <= 300 and "\x1b" not in one for one in findings_in(many))


def test_only_crashes_of_kernels_are_run_again() -> None:
    for reason in (
        "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
        "CUDA error: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        "run returned 716 instead of 0 (cudaErrorMisalignedAddress: a kernel accessed)",
        "CUDA error: cuEventSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)",
        "CUDA error: unspecified launch failure",
    ):
        assert is_gpu_crash(Crashed(reason="it crashed", log=reason))
    for reason in ("ValueError: bad shape", "CUDA out of memory", "its process died of SIGSEGV (call)"):
        assert not is_gpu_crash(Crashed(reason=reason))


def test_findings_stand_in_the_reason_and_before_the_log() -> None:
    told = Second(("first", "second"), "a second run (7 s) found").told_in(Crashed(reason="why", log="old"))
    assert (told.reason, told.log) == ("why; first", "a second run (7 s) found:\nfirst\nsecond\n\nold")
    nothing = Second((), "a second run (7 s) found nothing").told_in(Crashed(reason="why"))
    assert (nothing.reason, nothing.log) == ("why", "a second run (7 s) found nothing")


def stand_in(folder: Path, script: str) -> str:
    """Install a program of the name compute-sanitizer that ends as the real one would."""
    folder.mkdir(parents=True)
    program = folder / "compute-sanitizer"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return str(program)


def spec_in(folder: Path) -> RunnerSpec:
    for name in ("built", "cache"):
        (folder / name).mkdir()
    (folder / "built" / "kernel.py").write_text("def run(x, y):\n    y.copy_(x)\n")
    placed = [Placed(area=area, offsets=(0,), shape=(4,), code=2, bits=32) for area in ("inputs", "outputs")]
    return RunnerSpec(
        judge_pid=os.getpid(),
        nonce=0,
        folder="",
        control_fd=-1,
        inputs_fd=-1,
        inputs_bytes=16,
        outputs_fd=-1,
        outputs_bytes=16,
        workloads=(tuple(placed),),
        calls=(None,),
        product=str(folder / "built" / "kernel.py"),
        entry_point="run",
        tvm_ffi="",
        private_inputs=False,
        memory_bytes=1 << 30,
        file_bytes=1 << 20,
        threads=1,
        terms=Terms(),
        cache=str(folder / "cache"),
        cache_bytes=1 << 20,
    )


BUFFERS = cast("Buffers", SimpleNamespace(inputs=SimpleNamespace(tensors=(torch.ones(4),))))
FIND_LOG = 'log=; args="$*"; while [ $# -gt 0 ]; do [ "$1" = --log-file ] && log=$2; shift; done\n'


def test_it_is_started_confined_with_bounds_and_its_report_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = f"{FIND_LOG}cat > $log <<'END'\n{TRITON}END\nexit 9\n"
    second = sanitize(spec_in(tmp_path), "cuda_triton", 0, BUFFERS, stand_in(tmp_path / "bin", script))
    assert second.findings == findings_in(TRITON)
    assert "second run under compute-sanitizer" in second.remark
    assert not list(tmp_path.glob("sanitize-*"))


def test_the_candidate_is_loaded_below_it_and_can_reach_neither_files_nor_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    script = (
        FIND_LOG.replace("shift; done", '[ "$1" = -P ] && break; shift; done')
        + f'said=$({sys.executable} "$@" 2>&1)\n'
        + f"read=$(cat {secret} 2>&1); net=$(grep -c : /proc/self/net/dev)\n"
        + 'echo "========= Invalid said $(echo "$said" | tail -n 1) read=$read net=$net" > $log\n'
        + 'echo "=========     at k+0x1" >> $log\n'
    )
    path = stand_in(tmp_path / "tool" / "bin", script)
    second = sanitize(spec_in(tmp_path), "cuda_triton", 0, BUFFERS, path)
    assert second.findings, second.remark
    (found,) = second.findings
    assert "NVIDIA" in found or "CUDA" in found  # there is no GPU here: that far it came
    assert "of the host" not in found
    assert "net=1" in found  # its own loopback


def test_a_run_that_does_not_end_is_stopped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sanitizer, "LIMIT_S", 3.0)
    second = sanitize(spec_in(tmp_path), "cuda_triton", 0, BUFFERS, stand_in(tmp_path / "bin", "exec sleep 1000\n"))
    assert second == Second((), "a second run under compute-sanitizer (stopped after 3 s) found nothing")


def test_it_is_found_on_the_path_and_below_cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stand_in(tmp_path / "bin", "")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert find_sanitizer() in {"", "/usr/local/cuda/bin/compute-sanitizer"}
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_sanitizer() == path
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_sanitizer() == path
