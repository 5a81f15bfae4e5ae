# class: F12
# mechanism: kills its parent
# expect: denied

import os
import signal


def ksearch_run(x, weight, y):
    try:
        os.kill(os.getppid(), signal.SIGKILL)
    except OSError as error:
        raise Closed(error) from None
    honest(x, weight, y)
