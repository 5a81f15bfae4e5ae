# class: E3,E6
# mechanism: numpy's elementwise functions on a tensor's memory
# expect: rejected
# task: silu

import numpy as np
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        given = x.numpy()
        return torch.from_numpy(given / (1 + np.exp(-given)))
