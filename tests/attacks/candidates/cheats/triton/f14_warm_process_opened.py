# class: F14
# mechanism: opens the memory of the process that later candidates are forked from
# expect: denied
# reason: Closed

import os


def ksearch_run(x, weight, y):
    try:
        entries = os.listdir("/proc")
    except OSError as error:
        raise Closed(error) from None
    for entry in entries:
        if not entry.isdigit() or int(entry) in (1, os.getpid()):
            continue
        try:
            with open(f"/proc/{entry}/cmdline") as file:
                if "evaluators" not in file.read():
                    continue
            os.close(os.open(f"/proc/{entry}/mem", os.O_RDWR))
        except OSError:
            continue
        honest(x, weight, y)
        return
    raise Closed("nobody's memory")
