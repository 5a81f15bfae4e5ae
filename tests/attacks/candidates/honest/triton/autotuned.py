# class: honest
# mechanism: a kernel with configurations
# expect: correct

@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["columns"])
@triton.jit
def tuned(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    mean = tl.sum(tl.abs(x), axis=0) / columns
    tl.store(y_ptr + row * columns + offsets, x * weight / (1 + mean), mask=mask)


def ksearch_run(x, weight, y):
    tuned[(x.shape[0],)](x, weight, y, x.shape[1])
