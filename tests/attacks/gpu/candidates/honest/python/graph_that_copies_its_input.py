# class: honest
# mechanism: a graph over a tensor of its own; each call copies its input there first
# expect: correct|outpaced

class ModelNew(Honest):
    graph = None

    def forward(self, x):
        if self.graph is None:
            self.own = x.clone()
            self.work(self.own)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = self.work(self.own)
        self.own.copy_(x)
        self.graph.replay()
        return self.y.clone()
