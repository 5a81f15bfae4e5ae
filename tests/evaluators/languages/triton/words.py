"""Triton programs for the small task of `tests/evaluators/words.py`, right and wrong in many ways."""

from __future__ import annotations

import msgspec

from messages.tasks import Candidate, SourceFile
from tests.evaluators.words import SMALL_TASK

RIGHT = """
import os
import sys
import threading
import time

import torch
import triton
import triton.language as tl

kept = []


@triton.jit
def scale_rows(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(tl.abs(x), axis=0) / columns
    y = x * weight / (1 + mean)
    # kernel
    tl.store(y_ptr + row * columns + offsets, y, mask=mask)


def ksearch_run(x, weight, y):
    # before
    rows, columns = x.shape
    scale_rows[(rows,)](x, weight, y, columns, BLOCK=triton.next_power_of_2(columns))
    # after
"""

BFLOAT16_TASK = msgspec.structs.replace(
    SMALL_TASK,
    name="small in bfloat16",
    text=SMALL_TASK.text.replace(
        "nn.Parameter(1 + 0.1 * torch.randn(columns))", "nn.Parameter((1 + 0.1 * torch.randn(columns)).bfloat16())"
    ).replace("torch.rand(64, 256)", "torch.rand(64, 256).bfloat16()"),
)


def triton(text: str = RIGHT, path: str = "kernel.py") -> Candidate:
    return Candidate(language="triton", entry_point="ksearch_run", files=(SourceFile(path=path, text=text),))


def after(statement: str) -> str:
    """The right program, with a statement behind its launch."""
    return RIGHT.replace("# after", statement)


def before(statement: str) -> str:
    """The right program, with a statement before its launch."""
    return RIGHT.replace("# before", statement)


def inside(statement: str) -> str:
    """The right program, with a statement in its kernel, before the store."""
    return RIGHT.replace("# kernel", statement)
