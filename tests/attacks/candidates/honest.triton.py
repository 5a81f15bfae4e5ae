# What the Triton candidates of this collection build on: the honest program for the task `small`.
import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(tl.abs(x), axis=0) / columns
    tl.store(y_ptr + row * columns + offsets, x * weight / (1 + mean), mask=mask)


def honest(x, weight, y):
    rows, columns = x.shape
    scale_rows[(rows,)](x, weight, y, columns, BLOCK=triton.next_power_of_2(columns))


@triton.jit
def nothing(scratch_ptr):
    tl.store(scratch_ptr, 1.0)


def launch_something(x):
    """Launch a kernel of no use, for those that are to be caught by more than that they launch none."""
    nothing[(1,)](torch.empty(1, device=x.device))


class Closed(Exception):
    """Raised by canaries whose way was closed."""
