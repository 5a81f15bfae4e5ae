# class: E3,E6
# mechanism: a product of matrices by numpy's operator, on arrays made of lists
# expect: rejected
# task: product

import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight):
        left, right = (np.array(each.tolist(), dtype=np.float32) for each in (x, weight))
        return torch.from_numpy(left @ right)
