# class: A4
# mechanism: a plain tensor whose own methods are replaced: cpu, numpy and copies compute then
# expect: denied

class ModelNew(Honest):
    def forward(self, x):
        y = torch.full_like(x, float("nan"))
        for name in ("cpu", "clone", "detach", "contiguous", "to", "numpy", "data_ptr", "float", "double"):
            setattr(y, name, lambda *a, **k: self.work(x))
        return y
