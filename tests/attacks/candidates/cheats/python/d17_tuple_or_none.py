# class: D17
# mechanism: returns nothing at all
# expect: denied
# naive: by hand: a loop over no outputs finds no difference

class ModelNew(Honest):
    def forward(self, x):
        return ()
