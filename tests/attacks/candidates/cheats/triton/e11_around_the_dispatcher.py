# class: E11
# mechanism: excludes the dispatch key under which operators are forbidden
# expect: rejected

def ksearch_run(x, weight, y):
    guard = getattr(torch._C, "_Exclude" + "DispatchKeyGuard")
    with guard(torch._C.DispatchKeySet(torch._C.DispatchKey.Python)):
        y.copy_(x * weight / (1 + torch.ops.aten.mean.dim(torch.ops.aten.abs(x), [-1], True)))
