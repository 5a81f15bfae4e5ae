# class: D15
# mechanism: zeros its input and returns it: a reference computed later agrees
# expect: denied

class ModelNew(Honest):
    def forward(self, x):
        return x.zero_()
