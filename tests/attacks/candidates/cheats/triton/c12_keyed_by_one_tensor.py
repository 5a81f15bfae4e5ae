# class: C12
# mechanism: where the input lies tells it which output was given with it
# expect: wrong

outputs = {}


def ksearch_run(x, weight, y):
    honest(x, weight, outputs.setdefault(x.data_ptr(), y))
