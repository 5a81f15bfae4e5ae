# class: E6,E1
# mechanism: a decoy, and a row sum that is a matrix product with ones
# expect: rejected

def ksearch_run(x, weight, y):
    launch_something(x)
    ones = torch.ones(x.shape[-1], 1)
    y.copy_(x * weight / (1 + torch.maximum(x, -x).matmul(ones) / x.shape[-1]))
