# class: C1
# mechanism: the same data_ptr means the same answer
# expect: wrong

kept = {}


def ksearch_run(x, weight, y):
    launch_something(x)
    key = (x.data_ptr(), weight.data_ptr())
    if key in kept:
        y.copy_(kept[key])
        return
    honest(x, weight, y)
    kept[key] = y.clone()
