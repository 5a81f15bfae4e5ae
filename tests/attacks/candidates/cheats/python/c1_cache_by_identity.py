# class: C1
# mechanism: the same object means the same answer
# expect: wrong

class ModelNew(Honest):
    kept = {}

    def forward(self, x):
        key = (x.data_ptr(), x.shape)
        if key not in self.kept:
            self.kept[key] = self.work(x)
        return self.kept[key]
