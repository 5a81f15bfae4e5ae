# class: C12
# mechanism: works on the tensors that the first call was given
# expect: wrong
# reason: it keeps addresses, tensors or a graph of that call

kept = []


def ksearch_run(x, weight, y):
    if not kept:
        kept.extend((x, weight, y))
    honest(*kept)
