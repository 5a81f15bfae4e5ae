# class: D10
# mechanism: the variance as the difference of two means
# expect: wrong
# reason: far (above|below) zero
# task: centred
# naive: by hand: as C++'s d10_variance_in_one_pass

class ModelNew(nn.Module):
    def forward(self, x):
        mean = mean_of(x)
        variance = (mean_of(x * x) - mean * mean).clamp(min=0)
        return (x - mean) / (variance + 1e-5).sqrt()
