# class: honest
# mechanism: programs add to a sum in any order
# expect: correct

@triton.jit
def add(x_ptr, sums_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    x = tl.load(x_ptr + row * columns + part * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(sums_ptr + row, tl.sum(tl.abs(x), axis=0))


@triton.jit
def scale(x_ptr, weight_ptr, sums_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets)
    weight = tl.load(weight_ptr + offsets)
    tl.store(y_ptr + row * columns + offsets, x * weight / (1 + tl.load(sums_ptr + row) / columns))


def ksearch_run(x, weight, y):
    sums = torch.zeros(x.shape[0], device=x.device)
    add[(x.shape[0], 4)](x, sums, x.shape[1], BLOCK=64)
    scale[(x.shape[0],)](x, weight, sums, y, x.shape[1], BLOCK=256)
