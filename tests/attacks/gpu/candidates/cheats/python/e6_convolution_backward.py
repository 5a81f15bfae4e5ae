# class: E1,E6
# mechanism: a product of matrices by the backward operator of a convolution
# expect: rejected
# task: product

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight):
        columns, rows = weight.t().contiguous(), x
        given = rows.new_zeros(1, columns.shape[0], rows.shape[0], 1)
        product, _, _ = torch.ops.aten.convolution_backward(
            rows.reshape(1, *rows.shape).transpose(1, 2).contiguous().unsqueeze(-1),
            given,
            weight.reshape(*weight.shape, 1, 1),
            None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False],
        )
        return product[0, :, :, 0].t().contiguous()
