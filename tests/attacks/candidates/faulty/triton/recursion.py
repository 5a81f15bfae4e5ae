# class: faulty
# mechanism: recurses without end
# expect: crashed
# reason: RecursionError

def ksearch_run(x, weight, y):
    ksearch_run(x, weight, y)
