"""Tests with smaller sizes for the interpreter."""

from __future__ import annotations

from evaluators.tasks.tritonbench.tracing import capped


def test_sizes_are_capped_alike_and_odd_ones_stay_odd() -> None:
    assert capped("x = f(4096, (1023, 7), 0.5, 'a')") == "x = f(128, (127, 7), 0.5, 'a')\n"


def test_what_is_no_size_is_left() -> None:
    text = "torch.manual_seed(1234)\nBLOCK_SIZE = 1024\nkernel(x, num_warps=256, n=4096)\n"
    assert capped(text) == "torch.manual_seed(1234)\nBLOCK_SIZE = 1024\nkernel(x, num_warps=256, n=128)\n"
