# class: honest
# mechanism: numbers and a table by numpy, made when the module is
# expect: correct

import numpy as np


class ModelNew(Honest):
    def __init__(self, columns):
        super().__init__(columns)
        self.ones = torch.from_numpy(np.ones(columns, dtype=np.float32))
        self.half = np.float32(1 / np.log2(4))

    def forward(self, x):
        size = np.prod(x.shape) // x.shape[0]
        return self.work(x) * self.ones * (2 * self.half) * np.int64(size // x.shape[1])
