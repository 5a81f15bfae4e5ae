# class: honest
# mechanism: a normalisation in training mode that does not write down what it has seen: the verdict has to say so
# expect: correct
# reason: the reference changes norm.running_mean, norm.running_var, .* is not compared
# task: learning

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.BatchNorm1d(columns)

    def forward(self, x):
        left = x - mean_of(x.t()).t()
        variance = mean_of((left * left).t()).t()
        return left / (variance + self.norm.eps).sqrt() * self.norm.weight + self.norm.bias
