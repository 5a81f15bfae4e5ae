# class: honest
# mechanism: views of its tensors, and an empty one for scratch
# expect: correct

def ksearch_run(x, weight, y):
    rows, columns = x.shape
    scratch = torch.empty_like(y)
    honest(x.view(rows, columns), weight.reshape(-1), scratch)
    honest(x.contiguous(), weight, y.view(-1).view(rows, columns))
