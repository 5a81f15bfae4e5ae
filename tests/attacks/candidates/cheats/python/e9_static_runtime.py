# class: E9
# mechanism: torch's static runtime calls the kernels behind denied operators itself
# expect: rejected
# task: product

SOURCE = """
def run(x, weight):
    return torch.mm(x, weight)
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.static = torch._C._jit_to_static_module(torch.jit.CompilationUnit(SOURCE).run.graph)

    def forward(self, x, weight):
        return self.static(x, weight)
