# class: D7
# mechanism: NaN everywhere
# expect: wrong

def ksearch_run(x, weight, y):
    launch_something(x)
    y.fill_(float("nan"))
