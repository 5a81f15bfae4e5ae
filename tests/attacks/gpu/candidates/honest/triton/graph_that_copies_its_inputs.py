# class: honest
# mechanism: a graph over tensors of its own; each call copies its inputs there first
# expect: correct|outpaced

own = {}


def ksearch_run(x, weight, y):
    launch_something(x)
    if not own:
        own.update(x=x.clone(), weight=weight.clone(), y=torch.empty_like(y), graph=torch.cuda.CUDAGraph())
        honest(own["x"], own["weight"], own["y"])
        torch.cuda.synchronize()
        with torch.cuda.graph(own["graph"]):
            honest(own["x"], own["weight"], own["y"])
    own["x"].copy_(x)
    own["weight"].copy_(weight)
    own["graph"].replay()
    y.copy_(own["y"])
