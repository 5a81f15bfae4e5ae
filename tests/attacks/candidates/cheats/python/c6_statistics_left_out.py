# class: C6
# mechanism: leaves a normalisation out, since a new model has seen means of 0 and variances of 1
# expect: wrong
# task: normed
# naive: by hand: the same model is used in all calls

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.norm = torch.nn.BatchNorm1d(columns)

    def forward(self, x):
        normed = x * (self.norm.weight / (1 + self.norm.eps) ** 0.5) + self.norm.bias
        return normed * self.weight / (1 + mean_of(x.abs()))
