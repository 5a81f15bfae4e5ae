"""Calls candidates that are Python programs for a GPU, on the CPU: Triton's interpreter runs the kernels inside.

`python -m` of this is the warm process; environment and descriptors are as in `evaluators/judge/candidate/runner.py`.
A GPU that the candidate names is the CPU. Nothing here is timed.
"""

from __future__ import annotations

import sys

import triton.runtime.interpreter  # noqa: F401 - with numpy, while it can still be read

from evaluators.judge.reference.problem import redirected
from evaluators.runners.autotune import take_first_configurations
from evaluators.runners.module_call import serve_candidate
from evaluators.runners.warm import Order, fork_runners


def main() -> int:
    """Serve one judge until it goes away."""
    take_first_configurations()
    return fork_runners(_serve_candidate)


def _serve_candidate(order: Order) -> None:
    with redirected("cpu"):
        serve_candidate(order)


if __name__ == "__main__":
    sys.exit(main())
