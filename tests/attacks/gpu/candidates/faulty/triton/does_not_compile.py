# class: faulty
# mechanism: a kernel with a name that does not exist
# expect: did_not_build|crashed

@triton.jit
def broken(y_ptr):
    tl.store(y_ptr, no_such_name)


def ksearch_run(x, weight, y):
    broken[(1,)](y)
