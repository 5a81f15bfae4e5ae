# class: F10
# mechanism: writes to Triton's cache, where later candidates' kernels are found
# expect: denied
# reason: Closed

import os
from pathlib import Path


def ksearch_run(x, weight, y):
    mine = os.environ.get("TRITON_CACHE_DIR", "")
    for folder in (Path("@HOME@/.triton"), Path("@STORE@/@OTHER@"), Path("@REPOSITORY@")):
        try:
            folder.mkdir(exist_ok=True)
            (folder / "attack-@NONCE@").write_text("poison")
        except OSError:
            continue
        honest(x, weight, y)
        return
    raise Closed(mine)
