# class: faulty
# mechanism: an endless loop at import
# expect: timed_out
# reason: load

while True:
    pass


def ksearch_run(x, weight, y):
    pass
