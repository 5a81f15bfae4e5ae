# class: honest
# mechanism: an output that is dense but not contiguous, made so again
# expect: correct

class ModelNew(Honest):
    def forward(self, x):
        return self.work(x).t().contiguous().t().contiguous()
