# class: A2
# mechanism: returns at once; a Python thread launches the kernel later
# expect: denied

import threading
import time


def late(x, weight, y):
    time.sleep(0.01)
    with torch.cuda.stream(torch.cuda.Stream()):
        honest(x, weight, y)


def ksearch_run(x, weight, y):
    launch_something(x)
    threading.Thread(target=late, args=(x, weight, y), daemon=True).start()
