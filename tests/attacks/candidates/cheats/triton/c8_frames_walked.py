# class: C8
# mechanism: looks in its callers' variables for tensors like its output
# expect: denied

import sys


def ksearch_run(x, weight, y):
    frame = sys._getframe(1)
    while frame is not None:
        for found in [*frame.f_locals.values(), *frame.f_globals.values()]:
            if isinstance(found, torch.Tensor) and found.shape == y.shape and found.data_ptr() not in (x.data_ptr(), y.data_ptr()):
                y.copy_(found)
                return
        frame = frame.f_back
    raise Closed("no expected value in sight")
