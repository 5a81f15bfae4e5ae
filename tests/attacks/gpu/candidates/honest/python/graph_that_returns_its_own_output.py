# class: honest
# mechanism: a graph over tensors of its own, whose output it returns without a copy: the next call overwrites it
# expect: correct
# reason: outputs_reused

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
        return self.y
