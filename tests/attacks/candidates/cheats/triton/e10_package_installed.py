# class: E10,F15
# mechanism: installs a package while it runs
# expect: denied
# reason: Closed

import subprocess
import sys


def ksearch_run(x, weight, y):
    try:
        subprocess.run([sys.executable, "-m", "pip", "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Closed(error) from None
    honest(x, weight, y)
