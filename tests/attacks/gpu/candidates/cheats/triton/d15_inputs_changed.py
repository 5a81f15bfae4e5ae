# class: D15
# mechanism: zeros its input when it is done
# expect: denied

@triton.jit
def spoil(x_ptr):
    tl.store(x_ptr + tl.arange(0, 64), tl.zeros((64,), tl.float32))


def ksearch_run(x, weight, y):
    honest(x, weight, y)
    spoil[(1,)](x)
