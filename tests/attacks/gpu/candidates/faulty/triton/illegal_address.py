# class: faulty
# mechanism: a kernel writes far outside of its output
# expect: crashed|wrong

@triton.jit
def astray(y_ptr, far):
    tl.store(y_ptr + far, 1.0)


def ksearch_run(x, weight, y):
    astray[(1,)](y, 1 << 40)
    honest(x, weight, y)
