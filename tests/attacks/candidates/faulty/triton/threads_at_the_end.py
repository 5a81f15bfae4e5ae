# class: faulty
# mechanism: threads that are no daemons and never end
# expect: harmless

import threading
import time


def ksearch_run(x, weight, y):
    threading.Thread(target=time.sleep, args=(1e6,)).start()
    honest(x, weight, y)
