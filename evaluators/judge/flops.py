"""How many operations a reference does: matrix products, convolutions and attentions, by torch's count."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from evaluators.judge.problem import Problem, ProblemError

_SEED = 0


def count_flops(problem: Problem) -> int:
    """Run the reference once more and return its counted operations, two per multiply-add.

    Elementwise work, reductions and recurrent layers are not counted, a mask saves nothing. 0 also where torch's
    counter cannot follow a reference that runs well without it.
    """
    on_cpu = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}  # noqa: SLF001 - its only name
    counter = FlopCounterMode(display=False, custom_mapping=on_cpu)
    try:
        with counter:
            problem.reference(problem.inputs(seed=_SEED), problem.state)
    except ProblemError:
        return 0
    return int(counter.get_total_flops())


def _attention(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], *_: object, **__: object) -> int:
    """Count the attention of CPUs, of which torch's own table has only those of GPUs."""
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]
