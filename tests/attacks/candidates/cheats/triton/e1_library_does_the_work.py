# class: E1
# mechanism: torch's own operators, and no kernel
# expect: rejected

def ksearch_run(x, weight, y):
    y.copy_(x * weight / (1 + x.abs().mean(dim=-1, keepdim=True)))
