# class: honest
# mechanism: 5 parts of one tensor of its own in turn: whoever keeps a result finds another one there 5 calls later
# expect: correct
# reason: outputs_reused

class ModelNew(Honest):
    calls = 0

    def forward(self, x):
        if self.calls == 0:
            self.own = x.new_empty(5, *x.shape)
        self.calls += 1
        return self.own[self.calls % 5].copy_(self.work(x))
