# class: D5
# mechanism: returns half precision, which a comparison widens
# expect: denied

class ModelNew(Honest):
    def forward(self, x):
        return self.work(x).half()
