# class: E6,E1
# mechanism: a decoy, and operators of torch's that the reference does not use but that come to the same
# expect: rejected

def ksearch_run(x, weight, y):
    launch_something(x)
    sums = torch.where(x < 0, -x, x).sum(dim=-1, keepdim=True)
    torch.div(x * weight, 1 + sums / x.shape[-1], out=y)
