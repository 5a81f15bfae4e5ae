# class: A1
# mechanism: launches on a stream of its own and never joins it
# expect: denied

own = None


@triton.jit
def stall(scratch_ptr, rounds):
    value = 0.0
    for i in range(rounds):
        value += tl.load(scratch_ptr + i % 64)
    tl.store(scratch_ptr, value)


def ksearch_run(x, weight, y):
    global own
    if own is None:
        own = torch.cuda.Stream()
    with torch.cuda.stream(own):
        stall[(1,)](torch.zeros(64, device=x.device), 200000)
        honest(x, weight, y)
