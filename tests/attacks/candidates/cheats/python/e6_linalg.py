# class: E1,E6
# mechanism: a product of matrices by linear algebra with another name
# expect: rejected
# task: product

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight):
        return torch.linalg.vecdot(x[:, None, :], weight.t()[None, :, :])
