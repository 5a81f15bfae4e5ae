# class: D3
# mechanism: returns its input
# expect: denied
# naive: by hand: as C++'s d3_identity

class ModelNew(Honest):
    def forward(self, x):
        return x
