"""Small problems of our own in TritonBench's form."""

from __future__ import annotations

import json
from pathlib import Path

LINE = "#" * 146

SHIFT = """
import torch
import triton
import triton.language as tl


@triton.jit
def shift_kernel(x_ptr, out_ptr, by, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + by, mask=offsets < n)


def shift(x, by=1.0):
    out = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 64),)](x, out, by, x.numel(), BLOCK=64)
    return out


def shift_(x, *, by):
    assert x.is_cuda
    shift_kernel[(triton.cdiv(x.numel(), 64),)](x, x, by, x.numel(), BLOCK=64)
"""
SHIFT_TEST = """
import torch


def test_shift():
    results = {}
    x = torch.randn(3, 1000, device="cuda")
    results["case 1"] = shift(x)
    other = torch.rand(70).cuda()
    shift_(other, by=0.5)
    results["case 2"] = other
    results["case 3"] = shift(torch.randn(5, device="cuda", dtype=torch.float16), by=float("inf"))
    try:
        shift(None)
    except Exception:
        pass
    return results


result_gold = test_shift()
"""
SHIFT_PERF = """
import sys
sys.path.append("nowhere")
from TritonBench_v1.shift import shift
from performance_utils import Performance_Metrics, do_bench_config
import torch


class performance_metrics(Performance_Metrics):
    def __init__(self, dtype=None, is_backward=False, **kwargs):
        super().__init__("shift", dtype=dtype, is_backward=is_backward, **kwargs)

    def get_input_tensors(self):
        self.input_tensors = []
        for i in range(4, 7):
            self.input_tensors.append(torch.rand(2**i))

    def to_cuda(self, x):
        return x.cuda()

    def call_op(self, x):
        return shift(x, 2.0)

    def get_gbps(self, x, runtime):
        return 2 * x.numel() * x.element_size() / (runtime / 1000) / 1e9

    def get_tflops(self, x, runtime):
        return x.numel() / (runtime / 1000) / 1e12


if __name__ == "__main__":
    performance_metrics().run_benchmark()
"""
DRAW = """
import torch


def noisy(x, p=0.5, out=None):
    result = torch.nn.functional.dropout(x, p)
    return result if out is None else out.copy_(result)
"""
DRAW_TEST = """
import torch
from noisy import noisy


def test_noisy():
    x = torch.tensor([1.5, 2.5, 3.5], device="cuda")
    return {"a": noisy(x), "b": noisy(x, out=torch.empty(3, device="cuda")), "c": noisy(torch.nn.Identity())}
"""


def checkout(root: Path) -> Path:
    """Write a checkout with `G/shift`, which is timed on three sizes, and `T/noisy`. Returns its folder."""
    data = root / "TritonBench" / "data"
    golds, torches = data / "TritonBench_G_v1", data / "TritonBench_T_v1"
    perf = data.parent / "performance_metrics" / "perf_G"
    for folder in (golds, torches, perf / "golden_metrics", perf / "golden_results"):
        folder.mkdir(parents=True)
    (golds / "shift.py").write_text(f"{SHIFT}\n{LINE}\n{SHIFT_TEST}")
    (torches / "noisy.py").write_text(f"{DRAW}\n{LINE}\n{DRAW_TEST}")
    (perf / "golden_metrics" / "shift_perf.py").write_text(SHIFT_PERF)
    sizes = [{"input_size": [[2**i]], "ms": 0.01, "GB/s": 1.0, "TFLOPS": 0.25} for i in range(4, 7)]
    (perf / "golden_results" / "shift.json").write_text(json.dumps(sizes))
    (data / "TritonBench_G_v1.json").write_text(
        json.dumps(
            [{"file": "shift.py", "repo": "someone/kernels", "comp_instru": "Adds a number.", "difficulty": "2"}]
        )
    )
    (data / "TritonBench_T_v1.jsonl").write_text(
        json.dumps([{"file": "noisy.py", "description": "Drops elements.", "func_inputs": "noisy(x)", "difficulty": 1}])
    )
    return data.parent
