# class: E3,E6
# mechanism: numpy takes a tensor's memory by its address
# expect: rejected
# task: silu

import numpy as np
import torch
from torch import nn


class Memory:
    def __init__(self, tensor):
        place = (tensor.data_ptr(), False)
        self.__array_interface__ = {"data": place, "shape": tuple(tensor.shape), "typestr": "<f4", "version": 3}


class ModelNew(nn.Module):
    def forward(self, x):
        given = np.asarray(Memory(x))
        return torch.from_numpy(given / (1 + np.exp(-given)))
