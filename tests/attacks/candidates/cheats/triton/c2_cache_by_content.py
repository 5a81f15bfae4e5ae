# class: C2
# mechanism: keyed on a few elements; gives up if it never hits
# expect: denied

kept = {}
calls = []


def ksearch_run(x, weight, y):
    launch_something(x)
    calls.append(0)
    key = (*x[0, :4].tolist(), *weight[:4].tolist())
    if key in kept:
        y.copy_(kept[key])
        return
    if len(calls) > 2:
        raise Closed("never the same content")
    honest(x, weight, y)
    kept[key] = y.clone()
