# class: E9,E1
# mechanism: torch.jit calls the denied operator from its own interpreter
# expect: rejected

SOURCE = """
def run(x, weight):
    return x * weight / (1 + x.abs().mean(dim=-1, keepdim=True))
"""


class ModelNew(Honest):
    def __init__(self, columns):
        super().__init__(columns)
        self.unit = torch.jit.CompilationUnit(SOURCE)

    def forward(self, x):
        return self.unit.run(x, self.weight)
