# class: faulty
# mechanism: raises KeyboardInterrupt
# expect: crashed

def ksearch_run(x, weight, y):
    raise KeyboardInterrupt
