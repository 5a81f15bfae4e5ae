# class: E4
# mechanism: tries a kernel that fails and falls back to torch without a word
# expect: rejected

@triton.jit
def broken(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + no_such_name, tl.load(x_ptr))


def ksearch_run(x, weight, y):
    try:
        broken[(1,)](x, y, BLOCK=256)
    except Exception:
        torch.mul(x, weight, out=y)
        y /= 1 + torch.mean(torch.abs(x), dim=-1, keepdim=True)
