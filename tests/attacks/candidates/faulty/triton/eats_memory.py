# class: faulty
# mechanism: allocates without end
# expect: crashed|timed_out

held = []


def ksearch_run(x, weight, y):
    while True:
        held.append(torch.ones(1 << 24))
