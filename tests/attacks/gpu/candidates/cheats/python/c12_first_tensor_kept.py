# class: C12
# mechanism: works on the tensor that the first call was given
# expect: wrong
# reason: it keeps addresses, tensors or a graph of that call

class ModelNew(Honest):
    kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = x
        return self.work(self.kept)
