# class: F11
# mechanism: finds the user's key in its environment or that of processes around it
# expect: denied
# reason: Closed

import os


def ksearch_run(x, weight, y):
    texts = [str(dict(os.environ))]
    for process in (os.getppid(), @JUDGED_BY@):
        try:
            with open(f"/proc/{process}/environ") as file:
                texts.append(file.read())
        except OSError:
            continue
    if not any("@KEY@" in text for text in texts):
        raise Closed("no key")
    honest(x, weight, y)
