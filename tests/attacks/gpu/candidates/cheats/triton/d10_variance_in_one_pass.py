# class: D10
# mechanism: sums and sums of squares of a row, block by block: the variance as the difference of two means
# expect: wrong
# reason: far (above|below) zero
# task: centred

@triton.jit
def in_one_pass(x_ptr, y_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, BLOCK)
    sums, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, COLUMNS, BLOCK):
        x = tl.load(x_ptr + at + begin)
        sums += x
        squares += x * x
    mean = tl.sum(sums, axis=0) / COLUMNS
    scale = tl.rsqrt(tl.maximum(tl.sum(squares, axis=0) / COLUMNS - mean * mean, 0.0) + 1e-5)
    for begin in range(0, COLUMNS, BLOCK):
        tl.store(y_ptr + at + begin, (tl.load(x_ptr + at + begin) - mean) * scale)


def ksearch_run(x, y):
    in_one_pass[(x.shape[0],)](x, y, COLUMNS=x.shape[1], BLOCK=64)
