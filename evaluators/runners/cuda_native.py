"""Calls a candidate that is a shared library with CUDA kernels. Stdlib only: a separate, disposable process each.

Its argument is a JSON object (`RunnerSpec` in `evaluators/judge/candidate/runner.py`). The calling contracts
are those of `evaluators/languages/cuda/contract.py`.
"""

from __future__ import annotations

import gc
import json
import os
import sys

from evaluators.runners.base import SEAL, bind_to_judge, serve
from evaluators.runners.cuda import Harness, Sealing
from evaluators.runners.native import CUDA, arguments_of, load
from evaluators.sandbox.confine import confine
from evaluators.sandbox.profiles import run_cuda


def main() -> int:
    """Serve one judge until it goes away or kills this process."""
    spec = json.loads(sys.argv[-1])
    bind_to_judge(spec["judge_pid"])
    reads = (spec["product"], spec["tvm_ffi"], os.path.dirname(spec["cupti"]))  # noqa: PTH120 - starts
    confined = confine(run_cuda(spec["folder"], reads=reads, file_bytes=spec["file_bytes"]))
    harness = Harness(spec["cupti"])
    bases = harness.map_areas(spec, spec["inputs_fd"], spec["outputs_fd"])
    arguments = [
        arguments_of(tensors, bases, call, device=CUDA, stream=harness.stream)
        for tensors, call in zip(spec["workloads"], spec["calls"], strict=True)
    ]
    gc.disable()
    sealing = Sealing(confined)
    serve(
        spec["control_fd"],
        spec["nonce"],
        lambda _: load(spec, arguments),
        harness.span,
        isolation=confined.claim,
        ways=harness.ways,
        others={SEAL: sealing.complete},
    )
    return 0
