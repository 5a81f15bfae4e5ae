# class: faulty
# mechanism: writes far outside of its output
# expect: crashed|wrong

@triton.jit
def astray(y_ptr):
    tl.store(y_ptr + 10000000000, 1.0)


def ksearch_run(x, weight, y):
    astray[(1,)](y)
