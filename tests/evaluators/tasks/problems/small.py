"""The bundled problems in sizes that take no time, and what is right for them by another way of computing it."""

from __future__ import annotations

from types import ModuleType

import torch

from evaluators.judge.data.families import DataMaker, DataSet
from evaluators.judge.reference.problem import Problem, load_module
from evaluators.tasks import load_task
from messages.tasks import Dimension, TaskSpec, Tolerance, Workload

SIZES: dict[str, dict[str, Dimension]] = {
    "cross_entropy": {"tokens": 24, "vocabulary": 65},
    "gqa_decode": {"batch": 2, "heads": 4, "groups": 2, "length": 32, "dim": 16},
    "layernorm_gelu": {"rows": 16, "hidden": 64},
    "matmul_bias_gelu": {"tokens": 16, "inner": 32, "outer": 48},
    "mla_prefill": {"prompts": 3, "tokens": 25, "heads": 2, "latent": 24, "head": 16, "rotary": 8},
    "moe_fp8": {"tokens": 48, "hidden": 128, "inner": 128, "experts": 8, "groups": 4, "chosen": 2},
    "mxfp8_quantisation": {"rows": 7, "columns": 96},
    "paged_gqa_decode": {"batch": 3, "heads": 6, "groups": 2, "dim": 16, "page": 4, "pages": 5},
    "paged_mla_decode": {"batch": 3, "heads": 4, "latent": 32, "rotary": 8, "page": 4, "pages": 5},
    "rmsnorm_residual": {"rows": 9, "hidden": 48},
    "rmsnorm_silu": {"rows": 16, "hidden": 64},
    "rope": {"tokens": 11, "heads": 4, "groups": 2, "dim": 16, "positions": 50},
    "softmax_rows": {"rows": 16, "columns": 64},
    "top_k": {"rows": 8, "columns": 50, "k": 5},
    "top_k_sampling": {"rows": 32, "vocabulary": 60, "most": 12},
    "triangle_incoming": {"batch": 1, "residues": 9, "pair": 16, "hidden": 16, "is_padded": True},
    "triangle_multiplication": {"batch": 1, "residues": 9, "pair": 16, "hidden": 16},
}


def small_task(name: str) -> TaskSpec:
    return load_task(name)


def small_problem(name: str) -> Problem:
    return Problem(small_task(name), workload=Workload(name="small", dimensions=SIZES[name]))


def given(name: str) -> DataSet:
    """Return inputs and state of one call, with what the reference makes of them."""
    return DataMaker(small_problem(name), Tolerance()).given()


def module_of(name: str) -> ModuleType:
    return load_module(small_task(name), "cpu")


def doubles(data: DataSet) -> list[torch.Tensor]:
    """Return inputs and state, floating ones in float64."""
    return [one.double() if one.is_floating_point() else one for one in (*data.inputs, *data.state)]
