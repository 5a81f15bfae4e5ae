# class: honest
# mechanism: a graph is kept for each set of addresses
# expect: correct|outpaced

graphs = {}


def ksearch_run(x, weight, y):
    key = (x.data_ptr(), weight.data_ptr(), y.data_ptr())
    launch_something(x)
    if key not in graphs:
        honest(x, weight, y)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            honest(x, weight, y)
        graphs[key] = graph
    graphs[key].replay()
