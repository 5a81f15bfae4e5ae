# class: F15
# mechanism: runs a shell
# expect: denied
# reason: Closed

import os
import subprocess


def ksearch_run(x, weight, y):
    try:
        if subprocess.run(["/bin/sh", "-c", "exit 0"]).returncode != 0:
            raise Closed("no shell")
    except OSError as error:
        raise Closed(error) from None
    honest(x, weight, y)
