"""Calls a candidate that crashed on a GPU once more, under compute-sanitizer.

`python -m` of this, with `confine`, enters the sandbox and becomes compute-sanitizer, which starts the same module with
`call`: that loads the data, each tensor in GPU memory of its own, and calls the candidate twice. There is no judge at
the other end. System calls are not filtered, since compute-sanitizer needs some that runners are denied.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SPEC, DATA, LOG, SAID = "spec.json", "data.pt", "memcheck.log", "said.log"
_LAUNCHES, _REPORTS, _CALLS = 2000, 3, 2


def main() -> int:
    """Do one of both steps. Returns an exit code."""
    step, folder, kind, *rest = sys.argv[1:]
    spec: dict[str, Any] = json.loads((Path(folder) / SPEC).read_bytes())
    if step == "confine":
        _become_sanitizer(spec, kind, rest[0])
    return _call(spec, kind)


def command_of(folder: str, kind: str, path: str) -> list[str]:
    """Return how compute-sanitizer starts the second step."""
    return [
        *(path, "--tool", "memcheck", "--launch-count", str(_LAUNCHES), "--print-limit", str(_REPORTS)),
        *("--log-file", str(Path(folder) / LOG), "--error-exitcode", "9"),
        *(sys.executable, "-P", "-m", "evaluators.runners.sanitized", "call", folder, kind),
    ]


def _become_sanitizer(spec: dict[str, Any], kind: str, path: str) -> None:
    from evaluators.process.sandbox.confine import confine  # noqa: PLC0415
    from evaluators.process.sandbox.profiles import readable_by, run_cuda  # noqa: PLC0415
    from evaluators.runners.base import bind_to_judge  # noqa: PLC0415 - each step imports its own

    bind_to_judge(spec["judge_pid"])
    command = command_of(spec["folder"], kind, path)
    product = str(Path(spec["product"]).parent)
    reads = (product, spec["tvm_ffi"], *readable_by([sys.executable]), *readable_by([path, os.path.realpath(path)]))
    writes = (spec["cache"],) if os.path.isdir(spec["cache"]) else ()  # noqa: PTH112 - empty is none
    profile = run_cuda(spec["folder"], reads=tuple(filter(None, reads)), writes=writes, file_bytes=spec["cache_bytes"])
    # CUDA names its threads in /proc/self, which is another folder for the process that the tool starts.
    profile.writes = (*profile.writes, "/proc")
    profile.scratch_bytes = 0  # the data and the log lie in its folder
    profile.lists = (os.environ["PYTHONPATH"],)  # without it this module is not found
    confine(profile)
    os.environ["TRITON_CACHE_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"] = spec["cache"]
    os.execv(path, command)  # noqa: S606 - the tool, by its path


def _call(spec: dict[str, Any], kind: str) -> int:
    import torch  # noqa: PLC0415 - the first step must have one thread

    from evaluators.runners.warm import DTYPES  # noqa: PLC0415

    tensors = [each.cuda() for each in torch.load(Path(spec["folder"]) / DATA, weights_only=True)]
    tensors += [
        torch.empty(placed["shape"], dtype=DTYPES[placed["code"], placed["bits"]], device="cuda")
        for placed in spec["workloads"][0][len(tensors) :]
    ]
    call = _loaded(spec, kind, tensors)
    for _ in range(_CALLS):
        call()
        torch.cuda.synchronize()
    return 0


def _loaded(spec: dict[str, Any], kind: str, tensors: Sequence[torch.Tensor]) -> Callable[[], int]:
    """Load the candidate as its own runner does. Returns a call."""
    if kind == "cuda_native":
        from evaluators.runners import native  # noqa: PLC0415 - each kind imports its own

        placed = [
            {**each, "offsets": [tensor.data_ptr()]} for each, tensor in zip(spec["workloads"][0], tensors, strict=True)
        ]
        bases = {"inputs": 0, "outputs": 0}
        arguments = native.arguments_of(placed, bases, spec["calls"][0], device=native.CUDA, stream=0)
        return native.load(spec, [arguments])[1][0][0]
    from evaluators.runners.denial import Denial, Rules  # noqa: PLC0415
    from evaluators.runners.module_call import Loader, is_destination, nested  # noqa: PLC0415
    from evaluators.runners.warm import load_function  # noqa: PLC0415

    rules = Rules(spec["terms"], Denial(tuple(spec["terms"]["denied"])))
    if kind == "cuda_triton":
        return load_function(spec, [[tensors]], rules)[1][0][0]
    if is_destination(spec):
        return load_function(spec, [[tensors]], rules, nested)[1][0][0]
    return Loader(spec, [[list(tensors)]], rules, device="cuda:0", delivers=False).load(0)[1][0][0]


if __name__ == "__main__":
    sys.exit(main())
