# class: honest
# mechanism: each call copies its input to a tensor of its own, where the work is done
# expect: correct

class ModelNew(Honest):
    own = None

    def forward(self, x):
        if self.own is None:
            self.own = torch.empty_like(x)
        self.own.copy_(x)
        return self.work(self.own)
