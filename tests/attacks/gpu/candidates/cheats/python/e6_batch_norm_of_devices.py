# class: E1,E6
# mechanism: operators that only a GPU has, meant for training over several devices, normalise the rows
# expect: rejected
# task: centred

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.t()
        mean, scale = torch.ops.aten.batch_norm_stats(columns, 1e-5)
        return torch.ops.aten.batch_norm_elemt(columns, None, None, mean, scale, 1e-5).t().contiguous()
