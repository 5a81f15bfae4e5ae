# class: C12,A7
# mechanism: a graph is captured on the first call's input and replayed for all
# expect: wrong
# reason: it keeps addresses, tensors or a graph of that call

class ModelNew(Honest):
    graph = None

    def forward(self, x):
        if self.graph is None:
            self.work(x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = self.work(x)
        self.graph.replay()
        return self.y.clone()
