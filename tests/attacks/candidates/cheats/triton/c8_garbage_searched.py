# class: C8
# mechanism: looks among all live objects for tensors like its output
# expect: denied
# reason: Closed

import gc


def ksearch_run(x, weight, y):
    first = torch.empty_like(y[:1])
    honest(x[:1], weight, first)
    own = {tensor.data_ptr() for tensor in (x, y, first)}
    for found in gc.get_objects():
        if isinstance(found, torch.Tensor) and found.shape == y.shape and found.data_ptr() not in own:
            if abs(found[0, 0].item() - first[0, 0].item()) < 1e-3:
                y.copy_(found)
                return
    raise Closed("no expected value in sight")
