# class: E9
# mechanism: names of torch's operators are put together while it runs
# expect: rejected

def ksearch_run(x, weight, y):
    mean = getattr(torch, "me" + "an")(getattr(torch, "a" + "bs")(x), dim=-1, keepdim=True)
    y.copy_(x * weight / (1 + mean))
