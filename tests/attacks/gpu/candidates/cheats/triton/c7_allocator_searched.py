# class: C7
# mechanism: takes new memory from torch's allocator for an answer that the reference has freed
# expect: denied

def ksearch_run(x, weight, y):
    launch_something(x)
    y.copy_(torch.empty_like(y))
