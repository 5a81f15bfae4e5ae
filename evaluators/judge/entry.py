"""Entry of a judge: `python -m evaluators.judge.entry FD`, or forked from a warm process."""

from __future__ import annotations

import ctypes
import sys

from evaluators.judge.service import serve

NAME = b"ks-judge"
"""Name in process lists, at most 15 characters."""
_PR_SET_NAME = 15


def prepare() -> None:
    """Do nothing more: the modules that judges share are imported."""


def main(descriptor: str) -> int:
    """Serve the evaluator at the other end of a socket. Returns an exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    return serve(int(descriptor))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
