"""Calls candidates that are Triton programs, on a GPU. A process per candidate, forked from a warm one.

`python -m` of this is the warm process; environment and descriptors are as in `evaluators/judge/candidate/runner.py`.
The calling contract is that of `evaluators/languages/triton/contract.py`.
"""

from __future__ import annotations

import os
import sys

from evaluators.runners.base import SEAL, serve
from evaluators.runners.cuda_warm import Began, fork_gpu_runners
from evaluators.runners.kernels import KERNELS, seed_cache
from evaluators.runners.rules import Rules
from evaluators.runners.warm import Order, load_function


def main() -> int:
    """Serve one judge until it goes away."""
    return fork_gpu_runners(_serve_candidate)


def _serve_candidate(order: Order) -> None:
    began, spec = Began(order), order.spec
    seed_cache(os.path.join(os.path.dirname(str(spec["product"])), KERNELS), str(spec["cache"]))  # noqa: PTH118, PTH120
    with began.stream():
        rules, sealing = Rules(spec["terms"], order.denial), began.sealing()
        serve(
            order.control,
            spec["nonce"],
            lambda _: load_function(spec, began.workloads, rules),
            began.harness.span,
            isolation=order.isolation,
            ways=began.harness.ways,
            others={SEAL: sealing.complete},
        )
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
