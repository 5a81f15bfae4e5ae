"""Programs that the judge looks at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def program(code: str) -> Iterator[int]:
    """Run a program that says when it has begun. `{core}` in it becomes a core that it may use."""
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-S", "-c", code.replace("{core}", f"{{{core}}}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()
