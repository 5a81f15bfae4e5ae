# class: D10
# mechanism: a softmax in one pass whose running maximum starts at 0
# expect: wrong
# reason: far below zero
# task: soft

@triton.jit
def softmax_from_zero(x_ptr, y_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, BLOCK)
    top, total = 0.0, 0.0
    for begin in range(0, COLUMNS, BLOCK):
        x = tl.load(x_ptr + at + begin)
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for begin in range(0, COLUMNS, BLOCK):
        tl.store(y_ptr + at + begin, tl.exp(tl.load(x_ptr + at + begin) - top) / total)


def ksearch_run(x, y):
    softmax_from_zero[(x.shape[0],)](x, y, COLUMNS=x.shape[1], BLOCK=64)
