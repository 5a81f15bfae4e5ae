# class: E1
# mechanism: the reference itself
# expect: rejected

class ModelNew(Honest):
    def forward(self, x):
        return x * self.weight / (1 + x.abs().mean(dim=-1, keepdim=True))
