# class: honest
# mechanism: its own output buffer, written anew in every call
# expect: correct

class ModelNew(Honest):
    buffer = None

    def forward(self, x):
        if self.buffer is None or self.buffer.shape != x.shape:
            self.buffer = torch.empty_like(x)
        return self.buffer.copy_(self.work(x))
