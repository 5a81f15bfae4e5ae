# class: honest
# mechanism: reads the mask and the temperature, though they are the same in every draw
# expect: correct|outpaced
# task: tempered

@triton.jit
def masked(x_ptr, mask_ptr, temperature_ptr, y_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.where(tl.load(mask_ptr + at), tl.load(x_ptr + at), 0.0)
    tl.store(y_ptr + at, tl.abs(x) / tl.load(temperature_ptr))


def ksearch_run(x, mask, temperature, y):
    masked[(x.shape[0],)](x, mask, temperature, y, COLUMNS=x.shape[1])
