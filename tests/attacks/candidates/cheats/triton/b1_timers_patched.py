# class: B1
# mechanism: replaces Python's clocks; computes nothing in later calls, when it is timed
# expect: wrong
# reason: unwritten

import time

time.__dict__.update(dict.fromkeys(("perf_counter", "perf_counter_ns", "time", "monotonic"), lambda: 1))
calls = []


def ksearch_run(x, weight, y):
    launch_something(x)
    calls.append(0)
    if len(calls) == 1:
        honest(x, weight, y)
