# class: E11
# mechanism: destroys the registrations that forbid operators, then calls them
# expect: rejected

import gc


def ksearch_run(x, weight, y):
    for found in gc.get_objects():
        if type(found).__name__ == "Library":
            getattr(found, "_des" + "troy")()
    y.copy_(x * weight / (1 + x.abs().mean(dim=-1, keepdim=True)))
