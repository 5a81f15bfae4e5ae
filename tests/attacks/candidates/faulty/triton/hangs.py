# class: faulty
# mechanism: sleeps for ever
# expect: timed_out

import time


def ksearch_run(x, weight, y):
    time.sleep(1e9)
