# class: D10
# mechanism: divides by the temperature that it knows: it is the same in every draw
# expect: wrong
# reason: other constants
# task: tempered

@triton.jit
def divide(x_ptr, mask_ptr, y_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(y_ptr + at, tl.abs(tl.where(tl.load(mask_ptr + at), tl.load(x_ptr + at), 0.0)) / 2.0)


def ksearch_run(x, mask, temperature, y):
    divide[(x.shape[0],)](x, mask, y, COLUMNS=x.shape[1])
