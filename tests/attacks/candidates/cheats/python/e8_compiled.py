# class: E8
# mechanism: torch.compile makes the kernel
# expect: rejected

class ModelNew(Honest):
    def __init__(self, columns):
        super().__init__(columns)
        self.fast = torch.compile(self.work)

    def forward(self, x):
        return self.fast(x)
