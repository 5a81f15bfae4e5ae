"""Calls candidates that are Triton programs, by Triton's interpreter. A process per candidate, forked from a warm one.

`python -m` of this is the warm process; environment and descriptors are as in `evaluators/judge/candidate/runner.py`.
The calling contract is that of `evaluators/languages/triton/contract.py`.
"""

from __future__ import annotations

import os
import sys

import evaluators.runners.launches  # noqa: F401 - imported by the rules, when our packages cannot be read any more
from evaluators.runners.autotune import take_first_configurations
from evaluators.runners.base import serve
from evaluators.runners.mapping import begin_on_cpu
from evaluators.runners.rules import Rules
from evaluators.runners.warm import Order, fork_runners, load_function
from evaluators.sandbox.profiles import packages


def main() -> int:
    """Serve one judge until it goes away."""
    take_first_configurations()
    packages()
    return fork_runners(_serve_candidate)


def _serve_candidate(order: Order) -> None:
    workloads, spec = begin_on_cpu(order), order.spec
    rules = Rules(spec["terms"], order.denial)
    serve(order.control, spec["nonce"], lambda _: load_function(spec, workloads, rules), isolation=order.isolation)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
