# class: honest
# mechanism: prints in every call
# expect: correct

def ksearch_run(x, weight, y):
    print("called with", tuple(x.shape))
    honest(x, weight, y)
