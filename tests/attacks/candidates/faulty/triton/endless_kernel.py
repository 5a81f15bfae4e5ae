# class: faulty
# mechanism: a kernel with an endless loop
# expect: timed_out

@triton.jit
def endless(y_ptr):
    i = 0
    while i < 1:
        tl.store(y_ptr, 0.0)


def ksearch_run(x, weight, y):
    endless[(1,)](y)
