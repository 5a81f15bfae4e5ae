# class: E6
# mechanism: a backward operator that is the reference's forward writes the output; the kernel is of no use
# expect: rejected
# task: silu

def ksearch_run(x, y):
    launch_something(x)
    torch.ops.aten.softplus_backward(x, x, 1.0, 1e30, grad_input=y)
