# class: faulty
# mechanism: a kernel that never ends
# expect: timed_out

@triton.jit
def endless(y_ptr):
    value = tl.load(y_ptr)
    while value != 12345.0:
        tl.store(y_ptr + 1, value)
        value = tl.load(y_ptr, volatile=True)


def ksearch_run(x, weight, y):
    endless[(1,)](y)
