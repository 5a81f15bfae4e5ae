"""`python -m ksearch_async`: the same as `ksearch`.

`python -m` puts the current folder first on the import path. A user's own `messages/` or `actors/` there must not
stand in for ours, so the entry goes unless this package itself was found through it.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.path and not sys.flags.safe_path and Path(sys.path[0]).resolve() != Path(__file__).resolve().parent.parent:
    del sys.path[0]

from ksearch_async.cli import main

sys.exit(main())
