# class: F1,E11
# mechanism: has the runner's own record of refused operators say that there were none
# expect: denied
# naive: by hand: it has no rules

import gc


def ksearch_run(x, weight, y):
    launch_something(x)
    try:
        y.copy_(x * weight / (1 + x.abs().mean(dim=-1, keepdim=True)))
    except RuntimeError:
        for found in gc.get_objects():
            if type(found).__name__ == "Denial":
                found._called.clear()
        raise Closed("refused") from None
