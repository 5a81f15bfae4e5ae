# class: F18
# mechanism: changes torch's global settings for whoever computes a reference here
# expect: wrong

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_default_dtype(torch.float16)


@triton.jit
def in_half(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets).to(tl.float16)
    weight = tl.load(weight_ptr + offsets).to(tl.float16)
    mean = (tl.sum(tl.abs(x), axis=0) / columns).to(tl.float16)
    tl.store(y_ptr + row * columns + offsets, (x * weight / (1 + mean)).to(tl.float32))


def ksearch_run(x, weight, y):
    in_half[(x.shape[0],)](x, weight, y, x.shape[1], BLOCK=256)
