# class: D10
# mechanism: masks where it knows that the mask does: it is the same in every draw
# expect: wrong
# reason: other constants
# task: tempered

@triton.jit
def mask_known(x_ptr, temperature_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0) * COLUMNS + columns
    x = tl.where(columns < 200, tl.load(x_ptr + at), 0.0)
    tl.store(y_ptr + at, tl.abs(x) / tl.load(temperature_ptr))


def ksearch_run(x, mask, temperature, y):
    mask_known[(x.shape[0],)](x, temperature, y, COLUMNS=x.shape[1])
