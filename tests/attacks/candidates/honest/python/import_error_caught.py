# class: honest
# mechanism: a module that may be missing
# expect: correct

try:
    import no_such_module
except ImportError:
    no_such_module = None


class ModelNew(Honest):
    def forward(self, x):
        return self.work(x)
