# class: F2
# mechanism: has the runner report success and nothing else: its functions are replaced
# expect: denied
# naive: by hand: F1 is the same idea where the judge is in the same process

import gc
import os
import types

write = os.write


def forged(fd, data):
    return write(fd, bytes(data[:-16]) + bytes(16) if data[:4] == b"ksr1" else data)


os.write = forged


def ksearch_run(x, weight, y):
    raise ValueError("an error that nobody shall hear of")
