# class: D10
# mechanism: the variance as the difference of two means
# expect: wrong
# reason: far (above|below) zero
# task: centred

@triton.jit
def in_one_pass(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + at)
    mean = tl.sum(x, axis=0) / COLUMNS
    variance = tl.maximum(tl.sum(x * x, axis=0) / COLUMNS - mean * mean, 0.0)
    tl.store(y_ptr + at, (x - mean) / tl.sqrt(variance + 1e-5))


def ksearch_run(x, y):
    in_one_pass[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
