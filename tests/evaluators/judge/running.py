"""Small programs that run beside a test, to be looked at from outside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def running(code: str) -> Iterator[int]:
    """Run a program that prints a line when it has begun; yields its process id, and kills it in the end."""
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()
