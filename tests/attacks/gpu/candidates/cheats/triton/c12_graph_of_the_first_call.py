# class: C12,A7
# mechanism: a graph is captured on the first call's tensors and replayed for all
# expect: wrong
# reason: it keeps addresses, tensors or a graph of that call

graph = None


def ksearch_run(x, weight, y):
    global graph
    if graph is None:
        honest(x, weight, y)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            honest(x, weight, y)
    launch_something(x)
    graph.replay()
