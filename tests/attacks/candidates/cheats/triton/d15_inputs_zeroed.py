# class: D15
# mechanism: zeros input and output, so that a reference computed later agrees
# expect: denied
# naive: reference last

def ksearch_run(x, weight, y):
    x.zero_()
    y.zero_()
