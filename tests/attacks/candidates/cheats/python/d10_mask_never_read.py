# class: D10
# mechanism: masks where it knows that the mask does: it is the same in every draw
# expect: wrong
# reason: other constants
# task: tempered
# naive: by hand: as C++'s d10_mask_never_read

class ModelNew(nn.Module):
    def forward(self, x, mask, temperature):
        y = torch.zeros_like(x)
        y[:, :200] = (x[:, :200] * x[:, :200]) ** 0.5 / temperature
        return y
