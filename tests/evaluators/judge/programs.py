"""Programs that the judge looks at."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from tests.evaluators.judge.running import running


def program(code: str) -> AbstractContextManager[int]:
    """Run a program that says when it has begun. `{core}` in it becomes a core that it may use."""
    core = min(os.sched_getaffinity(0))
    return running(code.replace("{core}", f"{{{core}}}"))
