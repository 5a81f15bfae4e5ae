# class: F3
# mechanism: os._exit(0) before anything was compared
# expect: crashed
# reason: exit code 0

import os


def ksearch_run(x, weight, y):
    print("PASS", flush=True)
    os._exit(0)
