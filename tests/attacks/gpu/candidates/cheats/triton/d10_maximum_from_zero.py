# class: D10
# mechanism: a softmax whose maximum starts at 0, and stays there where everything lies far below
# expect: wrong
# reason: far below zero
# task: soft

@triton.jit
def from_zero(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + at)
    weights = tl.exp(x - tl.maximum(tl.max(x, axis=0), 0.0))
    tl.store(y_ptr + at, weights / tl.sum(weights, axis=0))


def ksearch_run(x, y):
    from_zero[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
