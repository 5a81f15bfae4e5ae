# class: B1
# mechanism: replaces torch's events and Python's clocks; it stalls by design
# expect: slow

import time


class Still:
    def __init__(self, *a, **k):
        pass

    def __getattr__(self, name):
        return lambda *a, **k: 1e-4


torch.cuda.__dict__["Event"] = Still
time.__dict__.update(dict.fromkeys(("perf_counter", "perf_counter_ns", "time", "monotonic"), lambda: 1))


@triton.jit
def stall(scratch_ptr, rounds):
    value = 0.0
    for i in range(rounds):
        value += tl.load(scratch_ptr + i % 64)
    tl.store(scratch_ptr, value)


def ksearch_run(x, weight, y):
    stall[(1,)](torch.zeros(64, device=x.device), 100000)
    honest(x, weight, y)
