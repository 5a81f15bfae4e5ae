# class: E6
# mechanism: a kernel that does nothing of use runs beside torch's operators
# expect: rejected

@triton.jit
def decoy(y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))


def ksearch_run(x, weight, y):
    decoy[(1,)](y, BLOCK=256)
    y.copy_(x * weight / (1 + x.abs().mean(dim=-1, keepdim=True)))
