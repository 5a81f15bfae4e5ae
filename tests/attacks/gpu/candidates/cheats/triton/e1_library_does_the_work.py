# class: E1
# mechanism: torch's own operators
# expect: rejected|did_not_build

def ksearch_run(x, weight, y):
    y.copy_(x * weight / (1 + x.abs().mean(dim=-1, keepdim=True)))
