# class: D10
# mechanism: a softmax whose maximum starts at 0, and stays there where everything lies far below
# expect: wrong
# reason: far below zero
# task: soft

class ModelNew(nn.Module):
    def forward(self, x):
        top = x.clamp(min=0)
        while top.shape[-1] > 1:
            top = torch.maximum(top[..., ::2], top[..., 1::2])
        weights = (x - top).exp()
        return weights / (mean_of(weights) * x.shape[-1])
