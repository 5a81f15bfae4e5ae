# class: C1
# mechanism: the same tensor object with the same version means the same answer
# expect: wrong

kept = {}


def ksearch_run(x, weight, y):
    launch_something(x)
    key = (id(x), x._version, id(weight), weight._version)
    if key not in kept:
        honest(x, weight, y)
        kept[key] = y.clone()
    y.copy_(kept[key])
