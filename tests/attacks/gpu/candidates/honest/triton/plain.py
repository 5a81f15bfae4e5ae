# class: honest
# mechanism: nothing odd: what all the others are compared with
# expect: correct

def ksearch_run(x, weight, y):
    honest(x, weight, y)
