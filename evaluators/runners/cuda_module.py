"""Calls candidates that are torch modules, `ModelNew`, on a GPU. A process per candidate, forked from a warm one.

`python -m` of this is the warm process; environment and descriptors are as in `evaluators/judge/candidate/runner.py`.
Results are copied to the judge's memory behind the second event: the copy is not in the events' time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

from evaluators.runners.base import GIVE, HOLD, REUSED, SEAL, serve
from evaluators.runners.cuda_warm import Began, fork_gpu_runners
from evaluators.runners.kernels import KERNELS, seed_cache
from evaluators.runners.module_call import Loader, is_destination, nested
from evaluators.runners.rules import Rules
from evaluators.runners.warm import Order, load_function

_DEVICE = "cuda:0"
_T = TypeVar("_T")


def main() -> int:
    """Serve one judge until it goes away."""
    return fork_gpu_runners(_serve_candidate)


def _serve_candidate(order: Order) -> None:
    began, spec = Began(order), order.spec
    seed_cache(os.path.join(os.path.dirname(str(spec["product"])), KERNELS), str(spec["cache"]))  # noqa: PTH118, PTH120
    with began.stream():
        if is_destination(spec):
            _serve_destination(order, began)
        loader = Loader(spec, began.workloads, Rules(spec["terms"], order.denial), device=_DEVICE, delivers=False)
        began.harness.after = loader.hand_over
        sealing = began.sealing()
        serve(
            order.control,
            spec["nonce"],
            lambda workload: _finished(lambda: loader.load(workload)),
            began.harness.span,
            isolation=order.isolation,
            ways=began.harness.ways,
            others={
                HOLD: loader.hold,
                GIVE: lambda: _finished(loader.give),
                REUSED: lambda: _finished(loader.reused),
                SEAL: sealing.complete,
            },
        )
    os._exit(0)


def _serve_destination(order: Order, began: Began) -> None:
    spec, sealing = order.spec, began.sealing()
    rules = Rules(spec["terms"], order.denial)
    serve(
        order.control,
        spec["nonce"],
        lambda _: load_function(spec, began.workloads, rules, nested),
        began.harness.span,
        isolation=order.isolation,
        ways=began.harness.ways,
        others={SEAL: sealing.complete},
    )
    os._exit(0)


def _finished(work: Callable[[], _T]) -> _T:
    result = work()
    torch.cuda.synchronize()
    return result


if __name__ == "__main__":
    sys.exit(main())
