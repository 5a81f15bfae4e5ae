# class: A7
# mechanism: a graph over a copy of the first input is replayed for all
# expect: wrong|crashed|rejected

graph = None


def ksearch_run(x, weight, y):
    global graph
    if graph is None:
        stale = x.clone()
        honest(stale, weight, y)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            honest(stale, weight, y)
    launch_something(x)
    graph.replay()
