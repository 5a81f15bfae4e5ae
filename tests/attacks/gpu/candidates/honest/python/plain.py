# class: honest
# mechanism: nothing odd: what all the others are compared with
# expect: correct|outpaced

class ModelNew(Honest):
    def forward(self, x):
        return self.work(x)
