"""The warm process of one kind of runner: `python -m evaluators.runners KIND SOCKET JUDGE`.

SOCKET is a descriptor, JUDGE the judge's process id. Each kind imports its own packages, since candidates cannot read
ours. Shared libraries have no warm process: see `native.py` and `cuda.py`.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluators.runners.warm import Order


def main() -> int:
    """Serve one judge until it goes away."""
    kind, control_fd, judge_pid = sys.argv[1:]
    serve_candidate = _KINDS[kind]()
    from evaluators.runners.warm import fork_runners

    return fork_runners(int(control_fd), int(judge_pid), serve_candidate)


def _module() -> Callable[[Order], None]:
    with contextlib.suppress(ImportError):  # an installation may lack it, and so do candidates then
        for module in ("numpy.linalg", "numpy.fft", "numpy.random"):
            importlib.import_module(module)
    from evaluators.runners.module_call import serve_candidate

    return serve_candidate


def _interpreted() -> Callable[[Order], None]:
    from evaluators.process.sandbox.profiles import packages
    from evaluators.runners.triton_hooks import take_first_configurations
    from evaluators.runners.warm import serve_function_on_cpu

    take_first_configurations()
    packages()  # asked once, for all that are forked
    return serve_function_on_cpu


def _interpreted_module() -> Callable[[Order], None]:
    """Return a runner of Python programs for a GPU: a GPU that they name is the CPU, and nothing is timed."""
    from evaluators.judge.reference.problem import redirected
    from evaluators.runners.module_call import serve_candidate
    from evaluators.runners.triton_hooks import take_first_configurations

    take_first_configurations()

    def serve_redirected(order: Order) -> None:
        with redirected("cpu"):
            serve_candidate(order)

    return serve_redirected


def _cuda_triton() -> Callable[[Order], None]:
    from evaluators.runners import cuda_torch

    cuda_torch.prepare()
    return cuda_torch.serve_function


def _cuda_module() -> Callable[[Order], None]:
    from evaluators.runners import cuda_torch

    cuda_torch.prepare()
    return cuda_torch.serve_module


_KINDS = {
    "module": _module,
    "interpreted": _interpreted,
    "interpreted_module": _interpreted_module,
    "cuda_triton": _cuda_triton,
    "cuda_module": _cuda_module,
}

if __name__ == "__main__":
    sys.exit(main())
