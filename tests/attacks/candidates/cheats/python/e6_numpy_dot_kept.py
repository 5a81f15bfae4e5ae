# class: E3,E11
# mechanism: numpy's function for products, found again among the methods of its type
# expect: rejected
# task: product

import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight):
        left, right = (np.array(each.tolist(), dtype=np.float32) for each in (x, weight))
        method = next(value for name, value in vars(np.ndarray).items() if name == "dot")
        return torch.from_numpy(method(left, right))
