# class: E1,E6
# mechanism: a product of matrices as weighted sums of rows
# expect: rejected
# task: product

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight):
        rows, inner = x.shape
        bags = torch.arange(inner).repeat(rows, 1)
        return nn.functional.embedding_bag(bags, weight, mode="sum", per_sample_weights=x)
