# class: faulty
# mechanism: a block that needs more shared memory than there is
# expect: did_not_build|crashed

@triton.jit
def large(a_ptr, y_ptr, N: tl.constexpr):
    rows = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(a_ptr + rows % 64)
    tl.store(y_ptr + rows % 64, tl.dot(a, a, input_precision="tf32"))


def ksearch_run(x, weight, y):
    large[(1,)](x, y, N=256)
