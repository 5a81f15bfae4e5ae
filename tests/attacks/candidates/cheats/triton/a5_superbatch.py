# class: A5
# mechanism: the first call solves what it finds; later ones hand out by number
# expect: wrong

batch = []


def ksearch_run(x, weight, y):
    launch_something(x)
    if not batch:
        honest(x, weight, y)
        batch.append(y.clone())
    else:
        y.copy_(batch[0])
