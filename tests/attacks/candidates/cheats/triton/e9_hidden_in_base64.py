# class: E9
# mechanism: what calls torch's operators is text that is decoded and executed
# expect: rejected

import base64

HIDDEN = base64.b64encode(b"y.copy_(x * weight / (1 + x.abs().mean(dim=-1, keepdim=True)))")


def ksearch_run(x, weight, y):
    exec(base64.b64decode(HIDDEN), {"x": x, "weight": weight, "y": y})
