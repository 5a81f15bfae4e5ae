# class: D16
# mechanism: an output whose rows are one and the same memory
# expect: denied
# naive: by hand: where rows are alike

class ModelNew(Honest):
    def forward(self, x):
        return self.work(x)[:1].expand_as(x)
