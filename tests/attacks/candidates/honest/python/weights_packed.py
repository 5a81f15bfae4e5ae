# class: honest
# mechanism: parameters are packed after they were loaded
# expect: correct

class ModelNew(Honest):
    def __init__(self, columns):
        super().__init__(columns)
        self.packed = None
        self.register_load_state_dict_post_hook(lambda module, keys: setattr(module, "packed", None))

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.detach().clone()
        return x * self.packed / (1 + mean_of(x.abs()))
